package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Say which locks have which mode and timings", Args: cobra.NoArgs}
	c.AddCommand(newPolicyList(), newPolicySet(), newPolicyDelete())
	return c
}

func newPolicyList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the policies; the longest prefix of a name decides", Args: cobra.NoArgs}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
			got, err := pb.NewPolicyServiceClient(conn).ListPolicies(c.Context(), &pb.ListPoliciesRequest{})
			if err != nil {
				return err
			}
			return o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) {
				row(t, "LOCKS", "MODE", "TTL", "RENEW", "DRIFT", "LOCK-DELAY")
				for _, p := range got.Policies {
					row(t, p.Prefix+"*", p.Mode, p.Ttl, p.Renew, p.Drift, p.LockDelay)
				}
				for _, prefix := range got.Moving {
					row(t, prefix+"*", "moving: repeat `leased policy set`")
				}
			})
		})
	}
	return c
}

func newPolicySet() *cobra.Command {
	p := &pb.Policy{}
	c := &cobra.Command{Use: "set PREFIX* --mode MODE", Short: "Set the policy of the locks whose names begin with PREFIX",
		Long: "Set the policy of the locks whose names begin with PREFIX. Locks in use keep their mode, so a\n" +
			"change of mode is refused while there are any.",
		Example: "  leased policy set 'report/*' --mode efficiency --ttl 30s", Args: exactly(1, "a prefix and *")}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&p.Mode, "mode", "", "efficiency or correctness")
	flags.StringVar(&p.Ttl, "ttl", "", "how long a lease lasts when it is not renewed")
	flags.StringVar(&p.Renew, "renew", "", "time between two renewals (default: a third of ttl)")
	flags.StringVar(&p.Drift, "drift", "", "what a holder gives up early because clocks differ (default: 1% of ttl and 2ms)")
	flags.StringVar(&p.LockDelay, "lock-delay", "", "how long a lock stays closed after its holder was lost")
	c.RunE = func(c *cobra.Command, args []string) error {
		if p.Mode == "" {
			return usageError(fmt.Errorf("mode must be given: efficiency or correctness"))
		}
		p.Prefix = prefixOf(args)
		return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
			defer sayIfSlow(c)()
			got, err := pb.NewPolicyServiceClient(conn).SetPolicy(c.Context(), &pb.SetPolicyRequest{Policy: p})
			if err != nil {
				return err
			}
			return o.say(c, got, "locks %s* have mode %s", p.Prefix, p.Mode)
		})
	}
	return c
}

func newPolicyDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete PREFIX*", Short: "Delete the policy for a prefix", Args: exactly(1, "a prefix and *")}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
			defer sayIfSlow(c)()
			got, err := pb.NewPolicyServiceClient(conn).DeletePolicy(c.Context(), &pb.DeletePolicyRequest{Prefix: prefixOf(args)})
			if err != nil {
				return err
			}
			return o.say(c, got, "deleted the policy of %s*", prefixOf(args))
		})
	}
	return c
}

// sayIfSlow tells what takes so long, until the returned function is called.
func sayIfSlow(c *cobra.Command) (done func()) {
	timer := time.AfterFunc(2*time.Second, func() {
		fmt.Fprintln(c.ErrOrStderr(), "waiting until no lease of the efficiency mode is left on these locks; if you stop here, repeat the command to finish the change")
	})
	return func() { timer.Stop() }
}
