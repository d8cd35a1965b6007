package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// Release releases the lease. Its Context ends first. Then it calls the service, even
// if ctx has ended: only the values of ctx are used, and the call takes a few
// seconds at most. If the service does not confirm the release, Release returns why
// and retries in the background. A second Release, or one after the lease was lost,
// returns what Err returns.
func (l *Lease) Release(ctx context.Context) error {
	g, k := l.grant, l.grant.keepAlive
	c := k.client
	var (
		now    engine.Instant
		cancel context.CancelCauseFunc
		last   bool
		err    error
		held   engine.Held
	)
	c.update(func(at engine.Instant) []*clientcore.Grant {
		now = at
		expired := k.check(now, g)
		if err = l.cause(); err != nil {
			return expired
		}
		l.released = true
		g.leases = slices.DeleteFunc(g.leases, func(other *Lease) bool { return other == l })
		if cancel, last = l.cancel, len(g.leases) == 0; last {
			g.Grant.Release()
			held = g.Held
			ctx = releaseContext{k.limitRelease(), ctx}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if cancel != nil {
		cancel(engine.ErrReleased)
	}
	if last { // other leases of a re-entrant holder keep the grant
		c.holders.remove(g)
		if err = k.release(ctx, held, now); err != nil && errors.Is(err, ctx.Err()) { // not the caller's deadline
			err = fmt.Errorf("release %q: %w: no answer in time; the client repeats it in the background",
				string(l.Resource()), engine.ErrUncertain)
		}
	}
	if c.hooks.Released != nil {
		c.hooks.Released(l.Context(), g.event(now, err))
	}
	return err
}

// release releases a grant at the service, and retries until ctx ends.
func (k *keepAlive) release(ctx context.Context, held engine.Held, now engine.Instant) error {
	c := k.client
	again := func(err error, _ time.Duration) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return clientcore.EndsLater(err) && k.core.Over() == nil
	}
	err := c.retry(ctx, now, again, func() error {
		err := k.session.Release(ctx, held)
		if errors.Is(err, engine.ErrLost) { // a lost session counts as released
			return nil
		}
		return err
	})
	c.mu.Lock()
	k.core.Released(held, err)
	over := k.core.Over() != nil
	c.mu.Unlock()
	if over || err != nil || k.core.Fixed() {
		k.wakeUp()
	}
	return err
}

// limitRelease returns a context that bounds a release that begins now. Releases that begin
// at about the same time share it, because a timer for each would cost more than the
// release. The caller holds mu.
func (k *keepAlive) limitRelease() context.Context {
	if k.releaseTime == nil || k.releaseTime.Err() != nil { // after a pause, the timer may be late
		limit := min(maxRelease, k.core.Key().TTL)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		context.AfterFunc(ctx, cancel) // it ends by itself
		time.AfterFunc(limit/8, func() {
			k.client.mu.Lock()
			defer k.client.mu.Unlock()
			k.releaseTime = nil
		})
		k.releaseTime = ctx
	}
	return k.releaseTime
}

// releaseContext is the context of a release, or of a renewal of all leases of a session. It has the values of the
// caller's context but not its end: a caller often releases because its context ended.
type releaseContext struct {
	context.Context // bounds the call
	values          context.Context
}

// Value returns a value of either context.
func (c releaseContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
