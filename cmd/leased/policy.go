package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

func setUpPolicyShow(c *cobra.Command) {
	c.Aliases = []string{"list"}
	c.Args = cobra.MaximumNArgs(1)
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, api.ListPolicies, &pb.ListPoliciesRequest{})
		if err != nil {
			return err
		}
		narrow(got, prefixOf(args))
		return o.print(c, got, func(t *tabwriter.Writer) { tableOfPolicies(t, got) })
	}
}

// narrow keeps the policies that apply to names with a prefix.
func narrow(all *pb.ListPoliciesResponse, prefix string) {
	concerns := func(other string) bool { return strings.HasPrefix(other, prefix) || strings.HasPrefix(prefix, other) }
	all.Policies = slices.DeleteFunc(all.Policies, func(p *pb.Policy) bool { return !concerns(p.Prefix) })
	all.FilePolicies = slices.DeleteFunc(all.FilePolicies, func(p *pb.Policy) bool { return !concerns(p.Prefix) })
	all.Migrations = slices.DeleteFunc(all.Migrations, func(m *pb.Migration) bool { return !concerns(m.Prefix) })
}

// tableOfPolicies prints the policies, and if the member that answers has a file with policies, where that differs.
func tableOfPolicies(t *tabwriter.Writer, all *pb.ListPoliciesResponse) {
	line := func(file string, cells ...any) {
		if len(all.FilePolicies) > 0 {
			cells = append(cells, file)
		}
		row(t, cells...)
	}
	differ := false
	line("FILE", "LOCKS", "MODE", "TTL", "RENEW", "DRIFT", "LOCK-DELAY")
	for _, p := range all.Policies {
		mode, column := p.Mode, "not in the file"
		if p.Next != "" {
			mode += ", migrating to " + p.Next
		}
		if file := findPolicy(all.FilePolicies, p.Prefix); file != nil {
			column = "same"
			if fields := drift(p, file); fields != "" {
				column, differ = "differs: "+fields, true
			}
		}
		line(column, p.Prefix+"*", mode, p.Ttl, p.Renew, p.Drift, p.LockDelay)
	}
	for _, file := range all.FilePolicies {
		if findPolicy(all.Policies, file.Prefix) == nil {
			line("only in the file: mode "+file.Mode, file.Prefix+"*", "not in effect", "", "", "", "")
			differ = true
		}
	}
	if differ {
		fmt.Fprintf(t, "\nThe file of member %s differs from the policies in effect; "+
			"`leased policy apply FILE` applies a file.\n", all.Member)
	}
	for i, m := range all.Migrations {
		if i == 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintln(t, migrationText(m))
	}
}

// migrationText describes a migration in one line.
func migrationText(m *pb.Migration) string {
	text := fmt.Sprintf("%s* is migrating from %s to %s", m.Prefix, m.From, m.To)
	if m.Now {
		text += " without waiting for leases"
	}
	if m.WaitingFor != "" {
		text += "; waiting for: " + m.WaitingFor
	}
	if m.Holders > 0 && !strings.Contains(m.WaitingFor, "holder") {
		text += fmt.Sprintf(" (%s)", lockview.Count(m.Holders, "holder"))
	}
	return text
}

func setUpPolicySet(c *cobra.Command) {
	p := &pb.Policy{}
	var now, abort, noWait bool
	c.Args = exactly(1, "a prefix followed by *")
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&p.Mode, "mode", "", "efficiency or correctness")
	flags.StringVar(&p.Ttl, "ttl", "", "default TTL of a lease (default: 10s)")
	flags.StringVar(&p.Renew, "renew", "", "time between renewals (default: a third of the TTL)")
	flags.StringVar(&p.Drift, "drift", "", "safety margin for clock drift, subtracted from the TTL by the holder "+
		"(default: 1% of the TTL plus 2ms)")
	flags.StringVar(&p.LockDelay, "lock-delay", "", "time before a lock is granted again after its holder's session "+
		"expired (correctness mode only)")
	flags.BoolVar(&now, "now", false, "if the mode changes, do not wait for leases: holders lose them")
	flags.BoolVar(&noWait, "no-wait", false, "return when the migration has started")
	flags.BoolVar(&abort, "abort", false, "abort the migration in progress; the locks keep their mode")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if p.Prefix, err = prefixToChange(args[0]); err != nil {
			return err
		}
		switch {
		case abort && (p.Mode != "" || now):
			return usageError(errors.New("--abort cannot be combined with --mode or --now: the locks keep their mode"))
		case abort:
			return abortMigration(c, a, o, p.Prefix)
		case p.Mode == "" && !slices.ContainsFunc(policyTimings[:], flags.Changed):
			return usageError(errModeMissing)
		}
		got, err := a.setPolicy(c, p, now)
		if err != nil {
			return err
		}
		return a.finish(c, o, got, p.Mode, noWait, fmt.Sprintf("locks %s* have mode %s", p.Prefix, p.Mode))
	}
}

func abortMigration(c *cobra.Command, a *access, o *output, prefix string) error {
	got, err := fetch(c.Context(), a, api.AbortMigration, &pb.AbortMigrationRequest{Prefix: prefix})
	return o.say(c, got, err, "aborted the migration of %s*; the locks keep their mode", prefix)
}

func setUpPolicyDelete(c *cobra.Command) {
	var now, noWait bool
	c.Args = exactly(1, "a prefix followed by *")
	a, o := addAccess(c), addOutput(c)
	c.Flags().BoolVar(&now, "now", false, "if the mode changes, do not wait for leases: holders lose them")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the migration has started")
	c.RunE = func(c *cobra.Command, args []string) error {
		prefix, err := prefixToChange(args[0])
		if err != nil {
			return err
		}
		got, err := fetch(c.Context(), a, api.DeletePolicy, &pb.DeletePolicyRequest{Prefix: prefix, Now: now})
		if err != nil {
			return err
		}
		return a.finish(c, o, got, "", noWait, fmt.Sprintf("deleted the policy of %s*", prefix))
	}
}

func setUpPolicyApply(c *cobra.Command) {
	var now, noWait bool
	c.Args = exactly(1, "a YAML file with policies")
	a, o := addAccess(c), addOutput(c)
	c.Flags().BoolVar(&now, "now", false, "if a mode changes, do not wait for leases: holders lose them")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the migrations have started")
	c.RunE = func(c *cobra.Command, args []string) error {
		policies, err := settings.ReadPolicies(args[0])
		if err != nil {
			return usageError(err)
		}
		have, err := fetch(c.Context(), a, api.ListPolicies, &pb.ListPoliciesRequest{})
		if err != nil {
			return err
		}
		for _, p := range policies {
			want := wire.FromPolicy(p)
			if old := findPolicy(have.Policies, want.Prefix); old != nil && drift(old, want) == "" {
				if err := o.say(c, old, nil, "locks %s* already have this policy", want.Prefix); err != nil {
					return err
				}
				continue
			}
			got, err := fetch(c.Context(), a, api.SetPolicy, &pb.SetPolicyRequest{Policy: want, Now: now})
			if err != nil {
				return fmt.Errorf("set the policy for %s*: %w", want.Prefix, err)
			}
			done := fmt.Sprintf("locks %s* have mode %s", want.Prefix, want.Mode)
			if err := a.finish(c, o, got, want.Mode, noWait, done); err != nil {
				return err
			}
		}
		return nil
	}
}

// findPolicy returns the policy for exactly this prefix, or nil.
func findPolicy(all []*pb.Policy, prefix string) *pb.Policy {
	if i := slices.IndexFunc(all, func(p *pb.Policy) bool { return p.Prefix == prefix }); i >= 0 {
		return all[i]
	}
	return nil
}

// drift returns the fields of a policy in a file that differ from the policy in
// effect, "" if none does.
func drift(have, file *pb.Policy) string {
	var differ []string
	compare := func(name, have, file string) {
		if have != file {
			differ = append(differ, name+" "+cmp.Or(file, "by default"))
		}
	}
	compare("mode", cmp.Or(have.Next, have.Mode), file.Mode) // a migration ends with Next
	for i, name := range policyTimings {
		compare(name, *timings(have)[i], *timings(file)[i])
	}
	return strings.Join(differ, ", ")
}

// mergeAttempts bounds the retries when others change the topology between read
// and write.
const mergeAttempts = 5

// policyTimings are the flags of policy set with a duration.
var policyTimings = [...]string{"ttl", "renew", "drift", "lock-delay"}

var errModeMissing = errors.New("--mode is required: efficiency or correctness")

// setPolicy sets a policy. Fields that the flags do not give keep the values of the
// existing policy. It fills in p.
func (a *access) setPolicy(c *cobra.Command, p *pb.Policy, now bool) (got *pb.SetPolicyResponse, err error) {
	given := proto.CloneOf(p)
	err = a.call(c.Context(), func(service api) error {
		for try := 1; ; try++ {
			all, err := service.ListPolicies(c.Context(), &pb.ListPoliciesRequest{})
			if err != nil {
				return err
			}
			if err := merge(p, given, all.Policies, c.Flags().Changed); err != nil {
				return err
			}
			got, err = service.SetPolicy(c.Context(), &pb.SetPolicyRequest{Policy: p, Version: all.Version, Now: now})
			why := wire.FromStatus(err)
			if !errors.Is(why, wire.ErrOutdated) || errors.Is(why, lease.ErrUncertain) || try == mergeAttempts {
				return err
			}
		}
	})
	return got, err
}

// merge fills p with the given fields, and the rest from the existing policy for
// the same prefix.
func merge(p, given *pb.Policy, all []*pb.Policy, changed func(flag string) bool) error {
	old := findPolicy(all, given.Prefix)
	p.Mode = cmp.Or(given.Mode, old.GetNext(), old.GetMode())
	if p.Mode == "" {
		return usageError(fmt.Errorf("%s* has no policy yet: %w", given.Prefix, errModeMissing))
	}
	to, from := timings(p), timings(given)
	for i, flag := range policyTimings {
		if *to[i] = *from[i]; !changed(flag) && old != nil {
			*to[i] = *timings(old)[i]
		}
	}
	if p.Mode == "efficiency" && !changed("lock-delay") {
		p.LockDelay = ""
	}
	return nil
}

// timings returns the fields of a policy that policyTimings names.
func timings(p *pb.Policy) [4]*string { return [4]*string{&p.Ttl, &p.Renew, &p.Drift, &p.LockDelay} }
