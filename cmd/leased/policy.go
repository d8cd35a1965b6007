package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Show and change the mode and timings of locks", Args: cobra.NoArgs}
	c.AddCommand(newPolicyShow(), newPolicySet(), newPolicyApply(), newPolicyDelete())
	return c
}

func newPolicyShow() *cobra.Command {
	c := &cobra.Command{Use: "show [PREFIX]", Aliases: []string{"list"}, Short: "Show the policies and the migrations in progress",
		Long: "Show the policies that apply to locks whose names start with PREFIX, or all policies. The policy with the\n" +
			"longest matching prefix applies. Migrations in progress are shown with what they wait for. If the member that\n" +
			"answers has policies in its configuration file, the column FILE shows where they differ. The policies of a file\n" +
			"take effect only when a cluster is created, or by `leased policy apply`.",
		Example: "  leased policy show\n  leased policy show 'report/*'", Args: cobra.MaximumNArgs(1)}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, pb.NewPolicyServiceClient, pb.PolicyServiceClient.ListPolicies, &pb.ListPoliciesRequest{})
		if err != nil {
			return err
		}
		narrow(got, prefixOf(args))
		return o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) { tableOfPolicies(t, got) })
	}
	return c
}

// narrow keeps the policies that apply to names with a prefix.
func narrow(all *pb.ListPoliciesResponse, prefix string) {
	concerns := func(other string) bool { return strings.HasPrefix(other, prefix) || strings.HasPrefix(prefix, other) }
	all.Policies = slices.DeleteFunc(all.Policies, func(p *pb.Policy) bool { return !concerns(p.Prefix) })
	all.FilePolicies = slices.DeleteFunc(all.FilePolicies, func(p *pb.Policy) bool { return !concerns(p.Prefix) })
	all.Migrations = slices.DeleteFunc(all.Migrations, func(m *pb.Migration) bool { return !concerns(m.Prefix) })
}

func tableOfPolicies(t *tabwriter.Writer, all *pb.ListPoliciesResponse) {
	heading := []any{"LOCKS", "MODE", "TTL", "RENEW", "DRIFT", "LOCK-DELAY"}
	if len(all.FilePolicies) > 0 {
		heading = append(heading, "FILE")
	}
	row(t, heading...)
	for _, p := range all.Policies {
		mode := p.Mode
		if p.Next != "" {
			mode += ", migrating to " + p.Next
		}
		fields := []any{p.Prefix + "*", mode, p.Ttl, p.Renew, p.Drift, p.LockDelay}
		if len(all.FilePolicies) > 0 {
			fields = append(fields, fileColumn(all, p))
		}
		row(t, fields...)
	}
	tableOfDrift(t, all)
	if len(all.Migrations) > 0 {
		fmt.Fprintln(t)
	}
	for _, m := range all.Migrations {
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
		text += fmt.Sprintf(" (%s)", count(int(m.Holders), "holder"))
	}
	return text
}

const policySetLong = `Set the policy of the locks whose names start with PREFIX.

A change of mode is a migration: the locks are not granted until it is complete. A migration from correctness mode
waits until no lock is held; a migration from efficiency mode waits for the longest TTL of the Redis fleet. With
--now it does not wait, and holders lose their leases; gates refuse their late writes either way. Clients follow the
migration automatically.

The command waits until the migration is complete. Ctrl-C ends only the command: the service completes the migration
even if the leader changes. --abort ends a migration that is not complete, and the locks keep their mode.

Flags that are not given keep their values in an existing policy; an empty value such as --ttl '' restores the
default. Efficiency mode has no lock-delay. PREFIX may end with *; '*' alone applies to all locks.`

func newPolicySet() *cobra.Command {
	p := &pb.Policy{}
	var now, abort, noWait bool
	c := &cobra.Command{Use: "set PREFIX* (--mode MODE | --abort)", Short: "Set the policy of the locks whose names start with PREFIX",
		Long: policySetLong,
		Example: "  leased policy set 'report/*' --mode efficiency --ttl 30s\n" +
			"  leased policy set 'report/*' --mode correctness --now\n" +
			"  leased policy set 'report/*' --abort",
		Args: exactly(1, "a prefix followed by *")}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&p.Mode, "mode", "", "efficiency or correctness")
	flags.StringVar(&p.Ttl, "ttl", "", "default TTL of a lease (default: 10s)")
	flags.StringVar(&p.Renew, "renew", "", "time between renewals (default: a third of the TTL)")
	flags.StringVar(&p.Drift, "drift", "", "safety margin for clock drift, subtracted from the TTL by the holder (default: 1% of the TTL plus 2ms)")
	flags.StringVar(&p.LockDelay, "lock-delay", "", "time before a lock is granted again after its holder's session expired (correctness mode only)")
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
		case p.Mode == "" && !slices.ContainsFunc(policyTimings, flags.Changed):
			return usageError(errModeMissing)
		}
		got, err := a.setPolicy(c, p, now)
		if err != nil {
			return err
		}
		return a.finish(c, o, got, p.Mode, noWait, fmt.Sprintf("locks %s* have mode %s", p.Prefix, p.Mode))
	}
	return c
}

func abortMigration(c *cobra.Command, a *access, o *output, prefix string) error {
	got, err := fetch(c.Context(), a, pb.NewPolicyServiceClient, pb.PolicyServiceClient.AbortMigration, &pb.AbortMigrationRequest{Prefix: prefix})
	if err != nil {
		return err
	}
	return o.say(c, got, "aborted the migration of %s*; the locks keep their mode", prefix)
}

func newPolicyDelete() *cobra.Command {
	var now, noWait bool
	c := &cobra.Command{Use: "delete PREFIX*", Short: "Delete the policy for a prefix",
		Long: "Delete the policy for a prefix. The policy of the next shorter prefix then applies, or correctness mode if\n" +
			"there is none. If this changes the mode, it is a migration, as with `leased policy set`.",
		Example: "  leased policy delete 'report/*'", Args: exactly(1, "a prefix followed by *")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().BoolVar(&now, "now", false, "if the mode changes, do not wait for leases: holders lose them")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the migration has started")
	c.RunE = func(c *cobra.Command, args []string) error {
		prefix, err := prefixToChange(args[0])
		if err != nil {
			return err
		}
		got, err := fetch(c.Context(), a, pb.NewPolicyServiceClient, pb.PolicyServiceClient.DeletePolicy, &pb.DeletePolicyRequest{Prefix: prefix, Now: now})
		if err != nil {
			return err
		}
		return a.finish(c, o, got, "", noWait, fmt.Sprintf("deleted the policy of %s*", prefix))
	}
	return c
}
