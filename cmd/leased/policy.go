package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Say which locks have which mode and timings", Args: cobra.NoArgs}
	c.AddCommand(newPolicyShow(), newPolicySet(), newPolicyDelete())
	return c
}

func newPolicyShow() *cobra.Command {
	c := &cobra.Command{Use: "show [PREFIX]", Aliases: []string{"list"}, Short: "Show the policies, and the changes of mode that are under way",
		Long: "Show the policies that decide for the locks whose names begin with PREFIX, or all of them: the longest\n" +
			"prefix of a name decides. A change of mode that is under way is shown with what it waits for.",
		Example: "  leased policy show\n  leased policy show 'report/*'", Args: cobra.MaximumNArgs(1)}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
			got, err := pb.NewPolicyServiceClient(conn).ListPolicies(c.Context(), &pb.ListPoliciesRequest{})
			if err != nil {
				return err
			}
			narrow(got, prefixOf(args))
			return o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) { tableOfPolicies(t, got) })
		})
	}
	return c
}

// narrow leaves the policies that decide for names with a prefix.
func narrow(all *pb.ListPoliciesResponse, prefix string) {
	concerns := func(other string) bool { return strings.HasPrefix(other, prefix) || strings.HasPrefix(prefix, other) }
	policies, moves := all.Policies, all.Migrations
	all.Policies, all.Migrations = nil, nil
	for _, p := range policies {
		if concerns(p.Prefix) {
			all.Policies = append(all.Policies, p)
		}
	}
	for _, m := range moves {
		if concerns(m.Prefix) {
			all.Migrations = append(all.Migrations, m)
		}
	}
}

func tableOfPolicies(t *tabwriter.Writer, all *pb.ListPoliciesResponse) {
	row(t, "LOCKS", "MODE", "TTL", "RENEW", "DRIFT", "LOCK-DELAY")
	for _, p := range all.Policies {
		mode := p.Mode
		if p.Next != "" {
			mode += ", moving to " + p.Next
		}
		row(t, p.Prefix+"*", mode, p.Ttl, p.Renew, p.Drift, p.LockDelay)
	}
	if len(all.Migrations) > 0 {
		fmt.Fprintln(t)
	}
	for _, m := range all.Migrations {
		fmt.Fprintln(t, moveText(m))
	}
}

// moveText is a line about a move.
func moveText(m *pb.Migration) string {
	text := fmt.Sprintf("%s* is moving from %s to %s", m.Prefix, m.From, m.To)
	if m.Now {
		text += " now"
	}
	if m.WaitingFor != "" {
		text += "; waiting for: " + m.WaitingFor
	}
	if m.Holders > 0 && !strings.Contains(m.WaitingFor, "holder") {
		text += fmt.Sprintf(" (%s)", count(int(m.Holders), "holder"))
	}
	return text
}

// policySetLong is the help of policy set.
const policySetLong = `Set the policy of the locks whose names begin with PREFIX.

A change of mode is a move: the locks are not granted until it is complete. A move away from correctness mode
waits until nobody holds one of the locks; a move away from efficiency mode waits for the longest TTL of the Redis
fleet. With --now the holders lose their leases, and the move does not wait; gates refuse their late writes either
way. Holders and waiters are told, and come back by themselves.

The command waits until the move is complete. Ctrl-C leaves the move to the service, which completes it also if its
leader changes. --abort ends a move that is not complete: the locks keep their mode.

What is not given stays as it is in a policy that exists; --ttl '' sets the default again, and so for the other timings.
A lock-delay is not kept in efficiency mode, which has none. PREFIX may end with *; '*' alone is for all locks.`

func newPolicySet() *cobra.Command {
	p := &pb.Policy{}
	var now, abort, noWait bool
	c := &cobra.Command{Use: "set PREFIX* (--mode MODE | --abort)", Short: "Set the policy of the locks whose names begin with PREFIX",
		Long: policySetLong,
		Example: "  leased policy set 'report/*' --mode efficiency --ttl 30s\n" +
			"  leased policy set 'report/*' --mode correctness --now\n" +
			"  leased policy set 'report/*' --abort",
		Args: exactly(1, "a prefix and *")}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&p.Mode, "mode", "", "efficiency or correctness")
	flags.StringVar(&p.Ttl, "ttl", "", "how long a lease lasts when it is not renewed (default: 10s)")
	flags.StringVar(&p.Renew, "renew", "", "time between two renewals (default: a third of ttl)")
	flags.StringVar(&p.Drift, "drift", "", "what a holder gives up early because clocks differ (default: 1% of ttl and 2ms)")
	flags.StringVar(&p.LockDelay, "lock-delay", "", "how long a lock stays closed after its holder was lost; in correctness mode only")
	flags.BoolVar(&now, "now", false, "if the mode changes, do not wait for leases to end")
	flags.BoolVar(&noWait, "no-wait", false, "return when the move has begun")
	flags.BoolVar(&abort, "abort", false, "end the move that is under way: the locks keep their mode")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if p.Prefix, err = prefixToChange(args[0]); err != nil {
			return err
		}
		switch {
		case abort && (p.Mode != "" || now):
			return usageError(errors.New("--abort cannot be combined with --mode or --now: the locks keep the mode they have"))
		case abort:
			return abortMove(c, a, o, p.Prefix)
		case p.Mode == "" && !slices.ContainsFunc(policyTimings, flags.Changed):
			return usageError(errModeMissing)
		}
		got, err := a.setPolicy(c, p, now)
		if err != nil {
			return err
		}
		f := &moveFollower{access: a, command: c, move: got.Migration, to: p.Mode}
		if err := f.follow(noWait); err != nil {
			return err
		}
		if got.Migration != nil && noWait {
			return o.say(c, got, "%s; see `leased policy show`", moveText(got.Migration))
		}
		return o.say(c, got, "locks %s* have mode %s", p.Prefix, p.Mode)
	}
	return c
}

func abortMove(c *cobra.Command, a *access, o *output, prefix string) error {
	return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
		got, err := pb.NewPolicyServiceClient(conn).AbortMigration(c.Context(), &pb.AbortMigrationRequest{Prefix: prefix})
		if err != nil {
			return err
		}
		return o.say(c, got, "aborted the move of %s*: the locks keep their mode", prefix)
	})
}

func newPolicyDelete() *cobra.Command {
	var now, noWait bool
	c := &cobra.Command{Use: "delete PREFIX*", Short: "Delete the policy for a prefix",
		Long: "Delete the policy for a prefix. The locks then have the policy of the next shorter prefix, or correctness\n" +
			"mode. If that is another mode the change is a move, as with `leased policy set`.",
		Example: "  leased policy delete 'report/*'", Args: exactly(1, "a prefix and *")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().BoolVar(&now, "now", false, "if the mode changes, do not wait for leases to end")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the move has begun")
	c.RunE = func(c *cobra.Command, args []string) error {
		prefix, err := prefixToChange(args[0])
		if err != nil {
			return err
		}
		var got *pb.DeletePolicyResponse
		err = a.onLeader(c.Context(), func(conn *grpc.ClientConn) (err error) {
			got, err = pb.NewPolicyServiceClient(conn).DeletePolicy(c.Context(), &pb.DeletePolicyRequest{Prefix: prefix, Now: now})
			return err
		})
		if err != nil {
			return err
		}
		f := &moveFollower{access: a, command: c, move: got.Migration}
		if err := f.follow(noWait); err != nil {
			return err
		}
		if got.Migration != nil && noWait {
			return o.say(c, got, "%s; see `leased policy show`", moveText(got.Migration))
		}
		return o.say(c, got, "deleted the policy of %s*", prefix)
	}
	return c
}
