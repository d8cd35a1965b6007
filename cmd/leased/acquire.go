package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func newAcquire() *cobra.Command {
	r, signed := &pb.AcquireRequest{}, false
	c := &cobra.Command{Use: "acquire RESOURCE...", Short: "Acquire a lock",
		Long: "Acquire a lock, or several locks under one token. The lease expires after its TTL unless `leased renew`\n" +
			"extends it; `leased release` ends it. Use `leased run` to run a command under a lease that is renewed\n" +
			"automatically.",
		Example: "  leased acquire account/7 --ttl 1m --wait 30s\n  leased acquire account/7 account/8", Args: atLeast(1, "the name of a lock, or of several for a set")}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&r.Ttl, "ttl", "", "TTL of the lease (default: from the lock's policy)")
	flags.StringVar(&r.Wait, "wait", "", "how long to wait if others hold the lock, such as 30s (default: do not wait)")
	flags.StringVar(&r.Mode, "mode", "", "fail unless the lock has this mode: efficiency or correctness")
	flags.StringVar(&r.Holder, "holder", defaultHolder(), "name of the holder that 'leased inspect' shows")
	flags.BoolVar(&r.Shared, "shared", false, "share the lock with other shared holders (correctness mode only)")
	flags.Int32Var(&r.Permits, "permits", 0, "size of the semaphore; acquires one permit of it (correctness mode only)")
	flags.BoolVar(&signed, "signed", false, "also print the signed token, for gates that verify signatures")
	flags.StringToStringVar(&r.Metadata, "metadata", nil, "KEY=VALUE pairs that 'leased inspect' shows")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; len(args) > 1 {
			r.Resource, r.Resources = "", args
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		got, err := fetch(ctx, a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Acquire, r)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // the service cancels the attempt and releases what it may have granted
		}
		if err != nil {
			return err
		}
		if signed {
			return printSigned(ctx, c, a, o, got)
		}
		return o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) { acquiredRows(t, got) })
	}
	return c
}

func acquiredRows(t *tabwriter.Writer, got *pb.AcquireResponse) {
	row(t, "RESOURCE", "TOKEN", "MODE", "SLOT", "EXPIRES IN", "SESSION")
	row(t, got.Resource, got.Token, got.Mode, number(got.Slot), got.Ttl, sessionText(got.SessionId))
}

func newRenew() *cobra.Command {
	r := &pb.RenewRequest{}
	c := &cobra.Command{Use: "renew RESOURCE --token TOKEN", Short: "Extend a lease by its TTL",
		Long: "Extend a lease by its TTL, counted from now. In correctness mode this extends all leases of the session.\n" +
			"A lease that has expired cannot be renewed: acquire the lock again, for a new token.",
		Example: "  leased renew account/7 --token 12", Args: exactly(1, "the name of a lock")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().Uint64Var(&r.Token, "token", 0, "token of the lease, printed by leased acquire (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; r.Token == 0 {
			return usageError(fmt.Errorf("--token is required: the token that `leased acquire` printed"))
		}
		got, err := fetch(c.Context(), a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Renew, r)
		if err != nil {
			return err
		}
		return o.say(c, got, "renewed %s with token %d for %s", r.Resource, r.Token, got.Ttl)
	}
	return c
}

func newRelease() *cobra.Command {
	r := &pb.ReleaseRequest{}
	c := &cobra.Command{Use: "release RESOURCE --token TOKEN", Short: "Release a lease",
		Example: "  leased release account/7 --token 12", Args: exactly(1, "the name of a lock")}
	a, o := addAccess(c), addOutput(c)
	c.Flags().Uint64Var(&r.Token, "token", 0, "token of the lease, printed by leased acquire (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; r.Token == 0 {
			return usageError(fmt.Errorf("--token is required: the token that `leased acquire` printed"))
		}
		got, err := fetch(c.Context(), a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Release, r)
		if err != nil {
			return err
		}
		if !got.Released {
			return o.say(c, got, "%s is not held with token %d by you; nothing was released", r.Resource, r.Token)
		}
		return o.say(c, got, "released %s with token %d", r.Resource, r.Token)
	}
	return c
}
