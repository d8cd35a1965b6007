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
	if err := k.check(l); err != nil {
		return err
	}
	now := k.client.clock.Now()
	g := l.grant
	k.mu.Lock()
	if l.released || g.ended != nil {
		k.mu.Unlock()
		return k.check(l)
	}
	l.released = true
	g.leases = slices.DeleteFunc(g.leases, func(other *Lease) bool { return other == l })
	last := len(g.leases) == 0
	if last {
		k.end(g, engine.ErrReleased)
		k.releases[g.nonce] = true // keeps the session until the service confirms
	}
	k.mu.Unlock()

	l.cancel(engine.ErrReleased)
	var err error
	if last {
		g.cancelLeases()
		err = k.release(ctx, g.nonce)
		k.mu.Lock()
		delete(k.releases, g.nonce)
		if err != nil {
			k.releaseLater(g.nonce)
		}
		k.mu.Unlock()
		if k.fixed {
			k.wakeUp()
		}
	}
	emit(k.client.hooks.Released, l.ctx, g.event(now, err))
	return err
}

// release releases an attempt at the service, and retries for a few seconds. It
// ignores the end of ctx: a caller often releases because its context ended.
func (k *keepAlive) release(ctx context.Context, nonce engine.Nonce) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(maxRelease, k.timing.ttl))
	defer cancel()
	return k.client.retry(ctx, func(err error, _ time.Duration) bool { return !final(err) && !k.isOver() },
		func() error { return k.releaseOnce(ctx, nonce) })
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
	err := k.client.retry(k.client.ctx, func(error, time.Duration) bool { return !k.isOver() }, func() error {
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
	err := k.client.retry(ctx, func(err error, _ time.Duration) bool { return transient(err) }, func() error { return k.session.Close(ctx) })
	if err != nil && !errors.Is(err, engine.ErrLost) {
		k.client.sessionNotClosed(fmt.Errorf("session %s: %w", k.id, err))
	}
}
