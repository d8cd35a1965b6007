package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

var lossTests = []conformance{
	{"loss by expiry", func(f *fixture) {
		l := f.acquire(f.client(), f.name("a"), lease.WithoutRenewal())
		next := f.start(f.name("a")).granted()
		require.ErrorIs(f, l.Err(), engine.ErrExpired, "the holder gives up before the next holder is granted")
		require.ErrorIs(f, l.Err(), engine.ErrLost)
		f.wait(l.Done())
		require.ErrorIs(f, context.Cause(l.Context()), engine.ErrExpired)
		require.True(f, next.Token().Newer(l.Token()))
		require.ErrorIs(f, l.Release(f.ctx), engine.ErrExpired, "release after loss")
		require.ErrorIs(f, l.Renew(f.ctx), engine.ErrExpired, "renew after loss")
		require.NoError(f, next.Err(), "a release after the loss must not free the next holder's lock")
		f.requireHeld(f.client(), f.name("a"))
	}},
	{"renewal keeps a lease", func(f *fixture) {
		const enough = 4 // keep-alives at a third of the TTL: longer than the TTL
		renewed := make(chan error, 1000)
		c := f.client(lease.WithHooks(lease.Hooks{Renewed: func(r lease.Renewal) { renewed <- r.Err }}))
		l := f.acquire(c, f.name("a"))
		first, last := l.Deadline(), f.Clock.Now()
		for n := 0; n < enough; {
			select {
			case err := <-renewed:
				if err == nil { // it may fail while the leader changes
					n, last = n+1, f.Clock.Now()
				}
			case <-l.Done():
				require.Greater(f, f.Clock.Now().Since(last), f.TTL/2, "lost although it was renewed: %v", l.Err())
				l = f.acquire(c, f.name("a")) // this process was too slow
				n, first, last = 0, l.Deadline(), f.Clock.Now()
			case <-f.ctx.Done():
				require.FailNow(f, "the lease is not renewed")
			}
		}
		require.NoError(f, l.Err())
		require.True(f, l.Deadline().After(first))
		f.requireHeld(f.client(), f.name("a"))
	}},
	{"renewal by hand", func(f *fixture) {
		c := f.client()
		var l *lease.Lease
		var extended engine.Instant
		for renewals := 0; renewals < 4; renewals++ { // longer than the TTL in all
			if renewals == 0 {
				extended = f.Clock.Now()
				l = f.acquire(c, f.name("a"), lease.WithoutRenewal(), lease.WithTTL(f.TTL))
			}
			first := l.Deadline()
			short := f.acquire(c, f.name("b"), lease.WithoutRenewal(), lease.WithTTL(f.TTL/3))
			f.wait(short.Done())
			now := f.Clock.Now()
			err := f.retry(func() error { return l.Renew(f.ctx) })
			if errors.Is(err, engine.ErrExpired) && f.Clock.Now().Since(extended) > f.TTL*9/10 {
				renewals = -1 // this process was too slow
				continue
			}
			require.NoError(f, err)
			require.True(f, l.Deadline().After(first))
			extended = now
		}
		require.NoError(f, l.Err(), "renewed for longer than its TTL")
		f.wait(l.Done())
		require.ErrorIs(f, l.Err(), engine.ErrExpired, "the lease ends if it is not renewed again")
	}},
	{"extension", func(f *fixture) {
		c := f.client()
		l := f.acquire(c, f.name("a"), lease.WithoutRenewal(), lease.WithTTL(f.TTL/3))
		require.NoError(f, f.retry(func() error { return l.Extend(f.ctx, f.TTL) }))
		extended := l.Deadline()
		require.NoError(f, f.retry(func() error { return l.Extend(f.ctx, f.TTL/3) }))
		require.WithinDuration(f, extended, l.Deadline(), f.TTL/3, "a shorter extension takes nothing back")
		short := f.acquire(c, f.name("b"), lease.WithoutRenewal(), lease.WithTTL(f.TTL/3))
		f.wait(short.Done())
		require.NoError(f, l.Err(), "its first TTL has passed")
		f.requireHeld(f.client(), f.name("a"))
		next := f.start(f.name("a")).granted()
		require.ErrorIs(f, l.Err(), engine.ErrExpired, "the holder gives up before the next holder is granted")
		require.True(f, next.Token().Newer(l.Token()))
		require.ErrorIs(f, l.Extend(f.ctx, f.TTL), engine.ErrExpired)
		require.ErrorIs(f, next.Extend(f.ctx, 0), engine.ErrInvalid)
	}},
	{"metadata can change", func(f *fixture) {
		l := f.acquire(f.client(), f.name("a"), lease.WithMetadata(map[string]string{"job": "7"}))
		progress := map[string]string{"job": "7", "done": "40%"}
		require.NoError(f, f.retry(func() error { return l.SetMetadata(f.ctx, progress) }))
		require.NoError(f, f.retry(func() error { return l.Renew(f.ctx) }))
		status, err := f.client().Inspect(f.ctx, f.name("a"))
		require.NoError(f, err)
		require.Len(f, status.Holders, 1)
		require.Equal(f, progress, status.Holders[0].Metadata)
		require.Equal(f, l.Token(), status.Holders[0].Token)
		require.ErrorIs(f, l.SetMetadata(f.ctx, nil), engine.ErrInvalid)
		f.release(l)
		require.ErrorIs(f, l.SetMetadata(f.ctx, progress), engine.ErrReleased)
	}},
	{"renewal ends with the release", func(f *fixture) {
		const ttls = 2 // of this test: the client keeps an unused session for one of them
		ttl := f.TTL / ttls
		renewed := make(chan struct{}, 1000)
		c := f.client(lease.WithHooks(lease.Hooks{Renewed: func(lease.Renewal) { renewed <- struct{}{} }}))
		l := f.acquire(c, f.name("a"), lease.WithTTL(ttl))
		receive(f, renewed)
		f.release(l)
		f.acquire(f.client(), f.name("a"))
		for n := 0; ; n++ {
			quiet := time.NewTimer(ttl)
			select {
			case <-renewed:
				require.Less(f, n, 9, "the client still renews after the release of its only lease")
			case <-quiet.C:
				return
			}
			quiet.Stop()
		}
	}},
	{"break", func(f *fixture) {
		operator := f.client()
		l := f.acquire(f.client(), f.name("a"))
		waiter := f.start(f.name("a"))
		f.notBroken(operator, f.name("a"), l.Token()+1000)
		require.NoError(f, l.Err())
		require.NoError(f, operator.Break(f.ctx, f.name("a"), l.Token()))
		next := waiter.granted()
		require.True(f, next.Token().Newer(l.Token()))
		f.wait(l.Done())
		require.ErrorIs(f, l.Err(), engine.ErrLost)
		f.notBroken(operator, f.name("a"), l.Token())
		require.NoError(f, next.Err(), "the next holder is not broken")
	}},
	{"other leases of the client survive a break", func(f *fixture) {
		c := f.client()
		broken, kept := f.acquire(c, f.name("a")), f.acquire(c, f.name("b"))
		require.NoError(f, f.client().Break(f.ctx, f.name("a"), broken.Token()))
		f.wait(broken.Done())
		require.NoError(f, kept.Err())
		f.release(kept)
	}},
	{"context of a lost lease", func(f *fixture) {
		c := f.client()
		l, kept := f.acquire(c, f.name("a")), f.acquire(c, f.name("b"))
		f.acquire(f.client(), f.name("c"))
		waited := make(chan error, 1)
		go func() { _, err := c.Acquire(l.Context(), f.name("c")); waited <- err }()
		require.NoError(f, f.client().Break(f.ctx, f.name("a"), l.Token()))
		f.wait(l.Done())
		require.Error(f, receive(f, waited))
		for call, err := range map[string]error{
			"renew":        kept.Renew(l.Context()),
			"extend":       kept.Extend(l.Context(), f.TTL),
			"set metadata": kept.SetMetadata(l.Context(), map[string]string{"job": "7"}),
		} {
			require.NotErrorIs(f, err, engine.ErrLost, call)
		}
		require.NoError(f, f.retry(func() error { return kept.Renew(f.ctx) }))
		f.requireHeld(f.client(), f.name("b"))
	}},
	{"do reports the loss", func(f *fixture) {
		mine := errors.New("mine")
		err := f.client().Do(f.ctx, f.name("a"), func(ctx context.Context, l *lease.Lease) error {
			f.wait(ctx.Done())
			require.ErrorIs(f, context.Cause(ctx), engine.ErrExpired)
			return mine
		}, lease.WithoutRenewal())
		require.ErrorIs(f, err, mine)
		require.ErrorIs(f, err, engine.ErrExpired)
	}},
	{"close releases everything", func(f *fixture) {
		c := f.client()
		a, b := f.acquire(c, f.name("a")), f.acquire(c, f.name("b"), lease.WithoutRenewal())
		waiter := f.start(f.name("a"))
		f.confirmed(c.Close(f.ctx))
		require.ErrorIs(f, a.Err(), lease.ErrClosed)
		require.ErrorIs(f, b.Err(), lease.ErrClosed)
		waiter.granted()
		f.acquire(f.client(), f.name("b"))
		_, err := c.Acquire(f.ctx, f.name("a"))
		require.ErrorIs(f, err, lease.ErrClosed)
	}},
}
