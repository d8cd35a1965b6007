package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease/remote/wire"
)

func newPolicyApply() *cobra.Command {
	var now, noWait bool
	c := &cobra.Command{Use: "apply FILE", Short: "Set the policies of a file",
		Long: "Set the policies in the section `policies` of a YAML file, such as the configuration file of a member. Policies\n" +
			"that already match the file, and those of prefixes that the file does not contain, do not change.\n\n" +
			"A member sets the policies of its own file only when it creates a cluster. Later changes of the file take effect\n" +
			"by this command. A change of mode is a migration, as with `leased policy set`.",
		Example: "  leased policy apply /etc/leased.yaml", Args: exactly(1, "a YAML file with policies")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().BoolVar(&now, "now", false, "if a mode changes, do not wait for leases: holders lose them")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the migrations have started")
	c.RunE = func(c *cobra.Command, args []string) error {
		policies, err := settings.ReadPolicies(args[0])
		if err != nil {
			return usageError(err)
		}
		have, err := fetch(c.Context(), a, pb.NewPolicyServiceClient, pb.PolicyServiceClient.ListPolicies, &pb.ListPoliciesRequest{})
		if err != nil {
			return err
		}
		for _, p := range policies {
			want := wire.FromPolicy(p)
			if old := findPolicy(have.Policies, want.Prefix); old != nil && drift(old, want) == "" {
				if err := o.say(c, old, "locks %s* already have this policy", want.Prefix); err != nil {
					return err
				}
				continue
			}
			got, err := fetch(c.Context(), a, pb.NewPolicyServiceClient, pb.PolicyServiceClient.SetPolicy, &pb.SetPolicyRequest{Policy: want, Now: now})
			if err != nil {
				return fmt.Errorf("set the policy for %s*: %w", want.Prefix, err)
			}
			if err := a.finish(c, o, got, want.Mode, noWait, fmt.Sprintf("locks %s* have mode %s", want.Prefix, want.Mode)); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// findPolicy returns the policy for exactly this prefix, or nil.
func findPolicy(all []*pb.Policy, prefix string) *pb.Policy {
	for _, p := range all {
		if p.Prefix == prefix {
			return p
		}
	}
	return nil
}

// drift returns the fields of a policy in a file that differ from the policy in
// effect, "" if none does.
func drift(have, file *pb.Policy) string {
	have = proto.CloneOf(have)
	if have.Next != "" { // a migration ends with this mode
		have.Mode, have.Next = have.Next, ""
	}
	var differ []string
	for _, f := range []struct{ name, have, file string }{{"mode", have.Mode, file.Mode}, {"ttl", have.Ttl, file.Ttl}, {"renew", have.Renew, file.Renew},
		{"drift", have.Drift, file.Drift}, {"lock-delay", have.LockDelay, file.LockDelay}} {
		if f.have != f.file {
			differ = append(differ, f.name+" "+orDefault(f.file))
		}
	}
	return strings.Join(differ, ", ")
}

func orDefault(text string) string {
	if text == "" {
		return "by default"
	}
	return text
}

// fileColumn returns how the file of a member differs from the policy in effect.
func fileColumn(all *pb.ListPoliciesResponse, p *pb.Policy) string {
	file := findPolicy(all.FilePolicies, p.Prefix)
	switch {
	case file == nil:
		return "not in the file"
	case drift(p, file) == "":
		return "same"
	}
	return "differs: " + drift(p, file)
}

// tableOfDrift lists the policies that only the file has, and says what that means.
func tableOfDrift(t *tabwriter.Writer, all *pb.ListPoliciesResponse) {
	differ := false
	for _, file := range all.FilePolicies {
		p := findPolicy(all.Policies, file.Prefix)
		if p == nil {
			row(t, file.Prefix+"*", "not in effect", "", "", "", "", "only in the file: mode "+file.Mode)
		}
		differ = differ || p == nil || drift(p, file) != ""
	}
	if differ {
		fmt.Fprintf(t, "\nThe file of member %s differs from the policies in effect; `leased policy apply FILE` applies a file.\n", all.Member)
	}
}
