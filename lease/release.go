package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// releaseLease implements Lease.Release. The last lease of a grant releases it at
// the service.
func (k *keepAlive) releaseLease(ctx context.Context, l *Lease) error {
	now := k.client.clock.Now()
	g := l.grant
	k.mu.Lock()
	expired := k.expire(now, g)
	if err := l.cause(); err != nil {
		k.mu.Unlock()
		k.reportLost(now, expired)
		return err
	}
	l.released = true
	g.leases = slices.DeleteFunc(g.leases, func(other *Lease) bool { return other == l })
	cancel, last := l.cancel, len(g.leases) == 0
	if last {
		k.end(g, engine.ErrReleased)
		k.releasing++ // keeps the session until the service confirms
		ctx = releaseContext{k.limitRelease(), ctx}
	}
	k.mu.Unlock()

	if cancel != nil {
		cancel(engine.ErrReleased)
	}
	var err error
	if last {
		k.client.holders.remove(g)
		err = k.release(ctx, g.nonce, now)
	}
	if k.client.hooks.Released != nil {
		k.client.hooks.Released(l.Context(), g.event(now, err))
	}
	return err
}

// release releases an attempt at the service, and retries until ctx ends. The caller has
// counted it as releasing.
func (k *keepAlive) release(ctx context.Context, nonce engine.Nonce, now engine.Instant) error {
	err := k.client.retry(ctx, now, func(err error, _ time.Duration) bool { return !final(err) && !k.isOver() },
		func() error { return k.releaseOnce(ctx, nonce) })
	k.mu.Lock()
	k.releasing--
	if err != nil {
		k.releaseLater(nonce)
	}
	k.mu.Unlock()
	if k.fixed {
		k.wakeUp()
	}
	return err
}

// limitRelease returns a context that bounds a release that begins now. Releases that begin
// at about the same time share it, because a timer for each would cost more than the
// release. The caller holds mu.
func (k *keepAlive) limitRelease() context.Context {
	if k.releaseTime == nil || k.releaseTime.Err() != nil { // after a pause, the timer may be late
		limit := min(maxRelease, k.timing.ttl)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		context.AfterFunc(ctx, cancel) // it ends by itself
		time.AfterFunc(limit/8, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.releaseTime = nil
		})
		k.releaseTime = ctx
	}
	return k.releaseTime
}

// releaseContext is the context of a release. It has the values of the caller's context but
// not its end: a caller often releases because its context ended.
type releaseContext struct {
	context.Context // bounds the release
	values          context.Context
}

// Value returns a value of either context.
func (c releaseContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// releaseOnce releases an attempt by one call. A lost session counts as released.
func (k *keepAlive) releaseOnce(ctx context.Context, nonce engine.Nonce) error {
	err := k.session.Release(ctx, nonce)
	if errors.Is(err, engine.ErrLost) {
		return nil
	}
	return err
}

// releaseLater has an attempt released in the background. The caller holds mu.
func (k *keepAlive) releaseLater(nonce engine.Nonce) {
	if k.over == nil && k.session != nil {
		k.releases[nonce] = false
		k.wakeUp()
	}
}

// startReleases starts the background releases. The caller holds mu.
func (k *keepAlive) startReleases() {
	for nonce, underWay := range k.releases {
		if underWay {
			continue
		}
		k.releases[nonce] = true
		k.client.work.Go(func() { k.releaseUntilDone(nonce) })
	}
}

// releaseUntilDone releases an attempt, and retries until the service confirms it or
// the session ends.
func (k *keepAlive) releaseUntilDone(nonce engine.Nonce) {
	err := k.client.retry(k.client.ctx, k.client.clock.Now(), func(error, time.Duration) bool { return !k.isOver() }, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.client.ctx), min(maxRelease, k.timing.ttl))
		defer cancel()
		return k.releaseOnce(ctx, nonce)
	})
	if err != nil && k.client.ctx.Err() != nil {
		return // closing the session releases it
	}
	k.mu.Lock()
	delete(k.releases, nonce)
	k.mu.Unlock()
	k.wakeUp()
}

// closeSession closes the session at the service, unless the service ended it. A
// session that cannot be closed ends with its TTL.
func (k *keepAlive) closeSession() {
	k.mu.Lock()
	over := k.over
	k.mu.Unlock()
	if errors.Is(over, engine.ErrLost) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.client.ctx), min(maxRelease, k.timing.ttl))
	defer cancel()
	err := k.client.retry(ctx, k.client.clock.Now(), func(err error, _ time.Duration) bool { return transient(err) }, func() error { return k.session.Close(ctx) })
	if err != nil && !errors.Is(err, engine.ErrLost) {
		k.client.sessionNotClosed(fmt.Errorf("session %s: %w", k.id, err))
	}
}
