//go:build unix

package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/cmd/leased/internal/supervise"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// readPolicy reads the policy of the lock, unless it is known, and sets what depends on it.
func (f *runFlags) readPolicy(ctx context.Context, resource fencing.Resource) error {
	if f.known {
		return nil
	}
	limited, cancel := f.whileWaiting(ctx)
	defer cancel()
	topology, err := f.access.topology(limited, !f.noWait)
	if err != nil {
		return err
	}
	f.known = true
	// A lock in correctness mode needs no connection to Redis, and no warning about it.
	if mode, err := topology.ModeOf(resource); err == nil && mode != lease.Efficiency {
		f.noRedis = true
	}
	return f.setTimings(cmp.Or(f.ttl, topology.Policies.For(resource).TTL))
}

// setTimings sets the TTL, and the grace if no flag gives it.
func (f *runFlags) setTimings(ttl time.Duration) error {
	f.ttl, f.grace = ttl, cmp.Or(f.grace, supervise.DefaultGrace(ttl))
	if err := supervise.Check(f.ttl, f.grace); err != nil {
		return usageError(err)
	}
	return nil
}

// whileWaiting returns a context that ends with the wait, if that is limited.
func (f *runFlags) whileWaiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, f.until)
}

// withTimings adds the TTL and the rest of the wait to the options of an acquisition.
func (f *runFlags) withTimings(options []lease.AcquireOption) []lease.AcquireOption {
	options = append(options, lease.WithTTL(f.ttl))
	if f.wait == 0 {
		return options
	}
	return append(options, lease.WithWaitLimit(max(time.Until(f.until), time.Millisecond)))
}

// connect connects to the service, and reads the policy of the lock. While no member can be reached, or none knows
// the policy, it waits as long as it would wait for the lock. The caller ends f.line.
func (f *runFlags) connect(ctx context.Context, resource fencing.Resource) (*lease.Client, error) {
	f.line = &waitingLine{out: os.Stderr, quiet: f.quiet, resource: resource, holder: f.holder}
	f.line.ctx, f.line.cancel = context.WithCancel(context.Background())
	limited, cancel := f.whileWaiting(ctx)
	defer cancel()
	trouble := wire.ErrUnreachable
	for {
		client, err := f.dial(limited)
		if err == nil {
			f.line.setInspect(client.Inspect)
			if err = f.readPolicy(limited, resource); err != nil {
				release(client, nil, closeTimeout)
			}
		}
		switch {
		case err == nil:
			return client, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case limited.Err() != nil, f.wait != 0 && !time.Now().Before(f.until): // a dial may end just before its context
			return nil, f.notAcquired(resource, trouble, trouble)
		case f.noWait || !temporary(err):
			return nil, err
		}
		trouble = err
		f.line.waiting(ctx, lease.Event{Err: err})
		_ = engine.Sleep(limited, rewatchInterval) // a database that does not run refuses connections at once
	}
}

// dial connects to the service, and to Redis if the lock is in efficiency mode.
func (f *runFlags) dial(ctx context.Context) (*lease.Client, error) {
	level := slog.LevelWarn
	if f.quiet {
		level = slog.LevelError
	}
	logger := slog.New(&plainHandler{out: os.Stderr, level: level})
	named := []lease.Option{lease.WithName(f.holder), lease.WithHooks(lease.Hooks{Waiting: f.line.waiting})}
	if dsn := f.access.postgres(); dsn != "" {
		_, backend, err := openPostgres(ctx, dsn, logger)
		if err != nil {
			return nil, err
		}
		return lease.New(backend, named...)
	}
	options := []client.Option{client.WithLogger(logger), client.WithLeaseOptions(named...)}
	if f.noRedis {
		options = append(options, client.WithoutRedis())
	}
	return f.access.dial(ctx, options...)
}
