package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

func setUpAcquire(c *cobra.Command) {
	r, signed := &pb.AcquireRequest{}, false
	c.Args = atLeast(1, "the name of a lock, or of several for a set")
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&r.Ttl, "ttl", "", "TTL of the lease (default: from the lock's policy)")
	flags.StringVar(&r.Wait, "wait", "", "how long to wait if others hold the lock or no leader can be reached, such "+
		"as 30s (default: do not wait)")
	flags.StringVar(&r.Mode, "mode", "", "fail unless the lock has this mode: efficiency or correctness")
	flags.StringVar(&r.Holder, "holder", defaultHolder(), "name of the holder that 'leased inspect' shows")
	flags.BoolVar(&r.Shared, "shared", false, "share the lock with other shared holders (correctness mode only)")
	flags.Int32Var(&r.Permits, "permits", 0, "size of the semaphore; acquires one permit of it (correctness mode only)")
	flags.BoolVar(&signed, "signed", false, "also print the signed token, for gates that verify signatures")
	flags.StringToStringVar(&r.Metadata, "metadata", nil, "KEY=VALUE pairs that 'leased inspect' shows")
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		if r.Resource = args[0]; len(args) > 1 {
			r.Resource, r.Resources = "", args
		}
		got, err := a.acquire(c.Context(), r) // after a signal, the service releases what it may have granted
		if err != nil {
			return err
		}
		if err := printAcquired(c, a, o, got, signed); err != nil { // nobody knows the token
			return errors.Join(err, a.release(c.Context(), got.Resource, got.Token))
		}
		return nil
	})
}

func acquiredRows(t *tabwriter.Writer, got *pb.AcquireResponse) {
	row(t, "RESOURCE", "TOKEN", "MODE", "SLOT", "EXPIRES IN", "SESSION")
	row(t, got.Resource, got.Token, got.Mode, number(got.Slot), got.Ttl, sessionText(got.SessionId))
}

// acquire acquires a lock. With a time to wait, it waits through an election and for members
// that cannot be reached, too. All its calls are one attempt: a call whose outcome is unknown
// may be in the queue of the lock, and another attempt would wait behind it. If the outcome is
// still unknown at the end, the lease expires after its TTL.
func (a *access) acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	signal.Ignore(syscall.SIGPIPE) // whoever cannot print what it did with the lock has to release it
	wait, err := time.ParseDuration(r.Wait)
	if err != nil || wait <= 0 {
		return fetch(ctx, a, api.Acquire, r) // the service validates it
	}
	r.Attempt = rand.Text()
	line := progress.New(os.Stderr, time.Now)
	defer line.End()
	for {
		got, err := fetch(ctx, a, api.Acquire, r)
		left := wait - line.Elapsed()
		if err == nil || ctx.Err() != nil || left <= 0 || !temporary(err) {
			return got, err
		}
		line.Stage("waiting for the service", ": "+oneLine(err.Error())+"; retrying; "+progress.TimeLeft(left))
		if engine.Sleep(ctx, min(rewatchInterval, left)) != nil {
			return nil, err
		}
		r.Wait = max(time.Millisecond, wait-line.Elapsed()).String()
	}
}

// leaseCommand sets up a command on a lease that is named by its lock and its token.
func leaseCommand(c *cobra.Command,
	run func(c *cobra.Command, a *access, o *output, resource string, token uint64) error) {
	c.Args = exactly(1, "the name of a lock")
	a, o := addAccess(c), addOutput(c)
	token := c.Flags().Uint64("token", 0, "token of the lease, printed by leased acquire (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *token == 0 {
			return usageError(fmt.Errorf("--token is required: the token that `leased acquire` printed"))
		}
		return run(c, a, o, args[0], *token)
	}
}

func setUpRenew(c *cobra.Command) {
	keepAlive, r := false, &pb.RenewRequest{}
	c.Flags().StringVar(&r.Ttl, "ttl", "", "how long the lease lasts from now; never shortens it (default: its TTL)")
	c.Flags().StringToStringVar(&r.Metadata, "metadata", nil, "KEY=VALUE pairs that replace the metadata of the lease")
	leaseCommand(c, func(c *cobra.Command, a *access, o *output, resource string, token uint64) error {
		r.Resource, r.Token = resource, token
		renew := func(ctx context.Context) (*pb.RenewResponse, error) {
			got, err := fetch(ctx, a, api.Renew, r)
			if temporary(err) {
				return got, err // it may be tried again
			}
			return got, o.say(c, got, err, "renewed %s with token %d for %s", resource, token, got.GetTtl())
		}
		if keepAlive {
			return keepRenewing(c.Context(), renew)
		}
		_, err := renew(c.Context())
		return err
	})
	c.Flags().BoolVar(&keepAlive, "keep-alive", false, "renew the lease again and again, until Ctrl-C or until it is lost")
}

// keepRenewing renews a lease three times per TTL until a signal ends it, which leaves the lease to its TTL. While the
// service is unavailable it tries again until the lease must have expired.
func keepRenewing(ctx context.Context, renew func(context.Context) (*pb.RenewResponse, error)) error {
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	var ttl time.Duration
	var expires time.Time
	for {
		before := time.Now()
		limited, cancel := ctx, context.CancelFunc(func() {})
		if ttl > 0 {
			limited, cancel = context.WithDeadline(ctx, expires)
		}
		got, err := renew(limited)
		late := limited.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // a signal ended it
		case err == nil:
			if ttl, err = time.ParseDuration(got.Ttl); err != nil {
				return fmt.Errorf("read the TTL of the answer: %w", err)
			}
			expires = before.Add(ttl)
		case ttl > 0 && (late || temporary(err) && time.Now().After(expires)):
			return &codeError{wire.ExitLost, fmt.Errorf("the lease was not renewed within its TTL of %v, so consider it "+
				"lost: %w", ttl, err)}
		case !temporary(err) || ttl == 0:
			return err
		}
		pause := ttl / 3
		if err != nil {
			pause = min(pause, rewatchInterval)
		}
		if engine.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

func setUpRelease(c *cobra.Command) {
	leaseCommand(c, func(c *cobra.Command, a *access, o *output, resource string, token uint64) error {
		got, err := fetch(c.Context(), a, api.Release, &pb.ReleaseRequest{Resource: resource, Token: token})
		if !got.GetReleased() {
			return o.say(c, got, err, "%s is not held with token %d by you; nothing was released", resource, token)
		}
		return o.say(c, got, err, "released %s with token %d", resource, token)
	})
}

func setUpSign(c *cobra.Command) {
	leaseCommand(c, func(c *cobra.Command, a *access, o *output, resource string, token uint64) error {
		got, err := a.sign(c.Context(), resource, token)
		return o.say(c, got, err, "%s", got.GetSignedToken())
	})
}

func (a *access) sign(ctx context.Context, resource string, token uint64) (*pb.SignResponse, error) {
	return fetch(ctx, a, api.Sign, &pb.SignRequest{Resource: resource, Token: token})
}

// printAcquired prints a new lease, with its signed token if that is wanted.
func printAcquired(c *cobra.Command, a *access, o *output, got *pb.AcquireResponse, sign bool) error {
	if !sign {
		return o.print(c, got, func(t *tabwriter.Writer) { acquiredRows(t, got) })
	}
	signed, err := a.sign(c.Context(), got.Resource, got.Token)
	if err != nil {
		return err
	}
	if o.format == "json" {
		var object map[string]any
		if err := json.Unmarshal(httpapi.Encode(got), &object); err != nil {
			return err
		}
		object["signedToken"] = signed.SignedToken
		return printJSON(c.OutOrStdout(), object, "  ")
	}
	if err := o.print(c, got, func(t *tabwriter.Writer) { acquiredRows(t, got) }); err != nil {
		return err
	}
	return say(c, "\nSIGNED TOKEN\n%s", signed.SignedToken)
}

// release releases a lease that the command has acquired, also after a signal.
func (a *access) release(ctx context.Context, resource string, token uint64) error {
	_, err := fetch(context.WithoutCancel(ctx), a, api.Release, &pb.ReleaseRequest{Resource: resource, Token: token})
	return err
}
