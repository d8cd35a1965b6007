package leasetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

var grantTests = []conformance{
	{"acquire and release", func(f *fixture) {
		c := f.client()
		l := f.acquire(c, f.name("a"))
		require.Equal(f, f.name("a"), l.Resource())
		require.Equal(f, []fencing.Resource{f.name("a")}, l.Resources())
		require.Equal(f, f.name("a"), l.GateResource())
		require.Zero(f, l.Slot())
		f.release(l)
		f.wait(l.Done())
		require.ErrorIs(f, l.Err(), engine.ErrReleased)
		require.ErrorIs(f, context.Cause(l.Context()), engine.ErrReleased)
		require.ErrorIs(f, l.Release(f.ctx), engine.ErrReleased, "released twice")
	}},
	{"one holder at a time", func(f *fixture) {
		a, b := f.client(), f.client()
		l := f.acquire(a, f.name("a"))
		f.requireHeld(b, f.name("a"))
		f.requireHeld(a, f.name("a"))
		f.acquire(b, f.name("b"))
		f.release(l)
		f.acquire(b, f.name("a"))
	}},
	{"tokens grow", func(f *fixture) {
		clients := []*lease.Client{f.client(), f.client()}
		last := fencing.None
		for i := range 40 {
			l := f.acquire(clients[i%2], f.name("a"))
			require.True(f, l.Token().Newer(last), "%d after %d", l.Token(), last)
			last = l.Token()
			f.release(l)
		}
	}},
	{"release works on a cancelled context", func(f *fixture) {
		a, b := f.client(), f.client()
		l := f.acquire(a, f.name("a"))
		cancelled, cancel := context.WithCancel(f.ctx)
		cancel()
		f.confirmed(l.Release(cancelled))
		f.acquire(b, f.name("a"))
	}},
	{"do", func(f *fixture) {
		c := f.client()
		var inside *lease.Lease
		require.NoError(f, c.Do(f.ctx, f.name("a"), func(ctx context.Context, l *lease.Lease) error {
			inside = l
			f.requireHeld(c, f.name("a"))
			return ctx.Err()
		}))
		require.ErrorIs(f, inside.Err(), engine.ErrReleased)
		mine := errors.New("mine")
		require.ErrorIs(f, c.Do(f.ctx, f.name("a"), func(context.Context, *lease.Lease) error { return mine }), mine)
	}},
	{"the mode belongs to the lock", func(f *fixture) {
		other := engine.Efficiency
		if f.Mode == engine.Efficiency {
			other = engine.Correctness
		}
		c := f.client()
		_, err := c.Acquire(f.ctx, f.name("a"), lease.WithMode(other))
		require.ErrorIs(f, err, engine.ErrModeMismatch)
		var mode *engine.ModeError
		require.ErrorAs(f, err, &mode)
		require.Equal(f, engine.ModeError{Resource: f.name("a"), Want: other, Have: f.Mode}, *mode)
		f.acquire(c, f.name("a"), lease.WithMode(f.Mode))

		mistaken := f.client(lease.WithPolicies(engine.Policy{TTL: f.TTL, Mode: other}))
		_, err = mistaken.Acquire(f.ctx, f.name("b"))
		require.ErrorIs(f, err, engine.ErrModeMismatch)
	}},
	{"inspect", func(f *fixture) {
		c := f.client()
		status, err := c.Inspect(f.ctx, f.name("a"))
		require.NoError(f, err)
		require.Equal(f, engine.Status{Resource: f.name("a"), Mode: f.Mode}, status)

		l := f.acquire(c, f.name("a"), lease.WithHolder("worker 7"), lease.WithMetadata(map[string]string{"job": "nightly"}))
		waiter := f.start(f.name("a"))
		status, err = f.client().Inspect(f.ctx, f.name("a"))
		require.NoError(f, err)
		require.Len(f, status.Holders, 1)
		holder := status.Holders[0]
		require.Equal(f, "worker 7", holder.Holder)
		require.Equal(f, l.Token(), holder.Token)
		require.Equal(f, engine.Exclusive, holder.Kind)
		require.Equal(f, map[string]string{"job": "nightly"}, holder.Metadata)
		require.LessOrEqual(f, holder.TTL, f.TTL)
		if f.FIFO {
			require.Len(f, status.Waiters, 1)
			require.Equal(f, fencing.None, status.Waiters[0].Token)
		}
		f.release(l)
		waiter.granted()
	}},
	{"bad requests are refused with the reason", func(f *fixture) {
		c := f.client()
		for says, call := range map[string]func() error{
			"empty":     func() error { _, err := c.Acquire(f.ctx, ""); return err },
			"513 bytes": func() error { _, err := c.Acquire(f.ctx, fencing.Resource(strings.Repeat("x", 513))); return err },
			"ttl":       func() error { _, err := c.Acquire(f.ctx, "a", lease.WithTTL(-time.Second)); return err },
			"permits":   func() error { _, err := c.Acquire(f.ctx, "a", lease.WithPermits(0)); return err },
			"one resource": func() error {
				_, err := c.Acquire(f.ctx, "a", lease.WithPermits(1), lease.WithSet("b"))
				return err
			},
			"wait limit": func() error { _, err := c.Acquire(f.ctx, "a", lease.WithWaitLimit(0)); return err },
			"holder":     func() error { _, err := c.Acquire(f.ctx, "a", lease.WithHolder("")); return err },
			"no token":   func() error { return c.Break(f.ctx, "a", fencing.None) },
		} {
			err := call()
			require.Error(f, err)
			if says != "no token" {
				require.ErrorContains(f, err, says)
			}
		}
	}},
}
