//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

func setUpLock(c *cobra.Command) {
	f := &runFlags{}
	c.Args = exactly(1, "the name of a lock")
	f.addClient(c)
	f.addKind(c)
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := positive(c.Flags(), "ttl", "wait"); err != nil {
			return err
		}
		return f.holding(c, args[0], func(ctx context.Context, client *lease.Client, options []lease.AcquireOption) error {
			l, err := f.acquire(ctx, client, fencing.Resource(args[0]), options)
			if err != nil {
				return err
			}
			f.line.end()
			if err := o.leaseEvent(c, "held", l, "holding %s with token %d; Ctrl-C releases it", l.Resource(),
				l.Token()); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-l.Done():
				return &codeError{wire.ExitLost, fmt.Errorf("the lease on %q was lost: %w", args[0], l.Err())}
			}
		})
	}
}

func setUpElect(c *cobra.Command) {
	f := &runFlags{}
	c.Args = exactly(1, "the name of a lock")
	f.addClient(c)
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := positive(c.Flags(), "ttl"); err != nil {
			return err
		}
		return f.holding(c, args[0], func(ctx context.Context, client *lease.Client, options []lease.AcquireOption) error {
			err := client.Elect(ctx, fencing.Resource(args[0]), func(leading context.Context, l *lease.Lease) error {
				f.line.end()
				if err := o.leaseEvent(c, "elected", l, "leading %s with token %d; Ctrl-C steps down", l.Resource(),
					l.Token()); err != nil {
					return err
				}
				<-leading.Done()
				if ctx.Err() != nil {
					return nil
				}
				return o.leaseEvent(c, "lost", l, "lost %s with token %d; campaigning again", l.Resource(), l.Token())
			}, options...)
			if c.Context().Err() == nil && ctx.Err() != nil {
				return nil // Ctrl-C
			}
			return err
		})
	}
}

// leaseEvent prints an event of a lease that this process holds, as a line.
func (o *output) leaseEvent(c *cobra.Command, event string, l *lease.Lease, format string, args ...any) error {
	if o.format == "json" {
		return printJSON(c.OutOrStdout(), map[string]any{"event": event, "resource": string(l.Resource()),
			"token": uint64(l.Token()), "mode": l.Mode().String()}, "")
	}
	return say(c, format, args...)
}

// holding connects a client, calls hold until a signal ends its context, and releases what the client holds. While the
// client waits for a lock, a signal ends the program as a shell expects.
func (f *runFlags) holding(c *cobra.Command, name string,
	hold func(context.Context, *lease.Client, []lease.AcquireOption) error) error {
	resource := fencing.Resource(name)
	options, err := f.options(c.Context(), resource)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // without a reader of its output, the process releases the lock before it ends
	ctx, stop := untilInterrupted(c.Context(), syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	client, err := f.connect(ctx, resource)
	defer f.line.end()
	if err != nil {
		return err
	}
	err = hold(ctx, client, f.withTimings(options))
	timeout := releaseTimeout
	if errors.Is(err, lease.ErrLost) { // there is nothing to release
		timeout = closeTimeout
	}
	release(client, nil, timeout)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return f.notAcquired(resource, err, f.line.notQueued())
}

// release releases the lease and closes the session. If the service does not
// answer within the timeout, both expire: an unanswered renewal must not keep the
// program from ending.
func release(client *lease.Client, l *lease.Lease, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if l != nil && l.Err() == nil {
			_ = l.Release(ctx)
		}
		_ = client.Close(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
