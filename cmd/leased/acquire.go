package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func newAcquire() *cobra.Command {
	r := &pb.AcquireRequest{}
	c := &cobra.Command{Use: "acquire RESOURCE...", Short: "Take a lock for a while",
		Long: "Take a lock, or several under one token. The lease ends when its ttl has passed, or with\n" +
			"`leased release`; `leased renew` extends it. To work under a lease that is renewed use `leased run`.",
		Example: "  leased acquire account/7 --ttl 1m --wait 30s\n  leased acquire account/7 account/8", Args: cobra.MinimumNArgs(1)}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&r.Ttl, "ttl", "", "how long the lease lasts (default: as the lock's policy says)")
	flags.StringVar(&r.Wait, "wait", "", "how long to wait for a lock that is held, as 30s (default: do not wait)")
	flags.StringVar(&r.Mode, "mode", "", "the mode that the lock must have: efficiency or correctness")
	flags.StringVar(&r.Holder, "holder", defaultHolder(), "who holds it, for people who inspect the lock")
	flags.BoolVar(&r.Shared, "shared", false, "share the lock with others who ask for it shared; in correctness mode only")
	flags.Int32Var(&r.Permits, "permits", 0, "take one of so many permits; in correctness mode only")
	flags.StringToStringVar(&r.Metadata, "metadata", nil, "what others see when they inspect the lock, as key=value")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; len(args) > 1 {
			r.Resource, r.Resources = "", args
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		err := a.onLeader(ctx, func(conn *grpc.ClientConn) error {
			got, err := pb.NewLeaseServiceClient(conn).Acquire(ctx, r)
			if err != nil {
				return err
			}
			return o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) {
				row(t, "RESOURCE", "TOKEN", "MODE", "SLOT", "ENDS IN", "SESSION")
				row(t, got.Resource, got.Token, got.Mode, number(got.Slot), got.Ttl, sessionText(got.SessionId))
			})
		})
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // the service gives up what it may have granted
		}
		return err
	}
	return c
}

func newRenew() *cobra.Command {
	r := &pb.RenewRequest{}
	c := &cobra.Command{Use: "renew RESOURCE --token TOKEN", Short: "Extend a lease by its ttl",
		Long: "Extend a lease by its ttl, counted from now. Any member can do it. In correctness mode all leases of the\n" +
			"session are extended. A lease that has ended is not taken again: acquire it, for a new token.",
		Example: "  leased renew account/7 --token 12", Args: exactly(1, "the name of a lock")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().Uint64Var(&r.Token, "token", 0, "token of the lease, as `leased acquire` printed it")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; r.Token == 0 {
			return usageError(fmt.Errorf("token must be given, as `leased acquire` printed it"))
		}
		return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
			got, err := pb.NewLeaseServiceClient(conn).Renew(c.Context(), r)
			if err != nil {
				return err
			}
			return o.say(c, got, "renewed %s, token %d, for %s", r.Resource, r.Token, got.Ttl)
		})
	}
	return c
}

func newRelease() *cobra.Command {
	r := &pb.ReleaseRequest{}
	c := &cobra.Command{Use: "release RESOURCE --token TOKEN", Short: "Give a lease back",
		Example: "  leased release account/7 --token 12", Args: exactly(1, "the name of a lock")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().Uint64Var(&r.Token, "token", 0, "token of the lease, as `leased acquire` printed it")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; r.Token == 0 {
			return usageError(fmt.Errorf("token must be given, as `leased acquire` printed it"))
		}
		return a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
			got, err := pb.NewLeaseServiceClient(conn).Release(c.Context(), r)
			if err != nil {
				return err
			}
			text := "released"
			if !got.Released {
				text = "was not held any more:"
			}
			return o.say(c, got, "%s %s, token %d", text, r.Resource, r.Token)
		})
	}
	return c
}
