package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/progress"
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
	flags.StringVar(&r.Wait, "wait", "", "how long to wait if others hold the lock or no leader can be reached, such as 30s (default: do not wait)")
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
		got, err := a.acquire(ctx, r)
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

// acquire acquires a lock. With a time to wait, it waits through an election and for
// members that cannot be reached, too. An attempt whose outcome is unknown is not repeated
// but replaced: if it was granted, its lease expires after its TTL.
func (a *access) acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	wait, err := time.ParseDuration(r.Wait)
	if err != nil || wait <= 0 {
		return fetch(ctx, a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Acquire, r) // the service validates it
	}
	line := progress.New(os.Stderr, time.Now)
	defer line.End()
	for {
		got, err := fetch(ctx, a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Acquire, r)
		left := wait - line.Elapsed()
		if err == nil || ctx.Err() != nil || left <= 0 || !temporary(err) {
			return got, err
		}
		line.Stage(oneLine(err.Error())+"; retrying", "; "+progress.TimeLeft(left))
		select {
		case <-time.After(min(rewatchInterval, left)):
		case <-ctx.Done():
			return nil, err
		}
		r.Wait = max(time.Millisecond, wait-line.Elapsed()).String()
	}
}

// leaseCommand completes a command on a lease that is named by its lock and its token.
func leaseCommand(c *cobra.Command, run func(c *cobra.Command, a *access, o *output, resource string, token uint64) error) *cobra.Command {
	c.Args = exactly(1, "the name of a lock")
	a, o := addAccess(c), addOutput(c)
	token := c.Flags().Uint64("token", 0, "token of the lease, printed by leased acquire (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *token == 0 {
			return usageError(fmt.Errorf("--token is required: the token that `leased acquire` printed"))
		}
		return run(c, a, o, args[0], *token)
	}
	return c
}

func newRenew() *cobra.Command {
	c := &cobra.Command{Use: "renew RESOURCE --token TOKEN", Short: "Extend a lease by its TTL",
		Long: "Extend a lease by its TTL, counted from now. In correctness mode this extends all leases of the session.\n" +
			"A lease that has expired cannot be renewed: acquire the lock again, for a new token.",
		Example: "  leased renew account/7 --token 12"}
	return leaseCommand(c, func(c *cobra.Command, a *access, o *output, resource string, token uint64) error {
		got, err := fetch(c.Context(), a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Renew, &pb.RenewRequest{Resource: resource, Token: token})
		if err != nil {
			return err
		}
		return o.say(c, got, "renewed %s with token %d for %s", resource, token, got.Ttl)
	})
}

func newRelease() *cobra.Command {
	c := &cobra.Command{Use: "release RESOURCE --token TOKEN", Short: "Release a lease", Example: "  leased release account/7 --token 12"}
	return leaseCommand(c, func(c *cobra.Command, a *access, o *output, resource string, token uint64) error {
		got, err := fetch(c.Context(), a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Release, &pb.ReleaseRequest{Resource: resource, Token: token})
		if err != nil {
			return err
		}
		if !got.Released {
			return o.say(c, got, "%s is not held with token %d by you; nothing was released", resource, token)
		}
		return o.say(c, got, "released %s with token %d", resource, token)
	})
}
