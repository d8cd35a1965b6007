package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leased-project/leased/lease/engine"
)

// releaseLease is Lease.Release. The last lease of a hold takes it to the
// service.
func (k *keeper) releaseLease(ctx context.Context, l *Lease) error {
	if err := k.check(l); err != nil {
		return err
	}
	now := k.client.clock.Now()
	h := l.hold
	k.mu.Lock()
	if l.released || h.ended != nil {
		k.mu.Unlock()
		return k.check(l)
	}
	l.released = true
	h.leases = slices.DeleteFunc(h.leases, func(other *Lease) bool { return other == l })
	last := len(h.leases) == 0
	if last {
		k.end(h, engine.ErrReleased)
		k.discards[h.nonce] = true // keeps the keeper until the service is told
	}
	k.mu.Unlock()

	l.cancel(engine.ErrReleased)
	var err error
	if last {
		h.finish()
		err = k.cleanup(ctx, h.nonce)
		k.mu.Lock()
		delete(k.discards, h.nonce)
		if err != nil {
			k.discard(h.nonce)
		}
		k.mu.Unlock()
		if k.fixed {
			k.poke()
		}
	}
	emit(k.client.hooks.Released, h.event(now, err))
	return err
}

// cleanup tells the service that an attempt is over. The caller's context may
// have ended: that is often why there is something to clean up.
func (k *keeper) cleanup(ctx context.Context, nonce engine.Nonce) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(maxCleanup, k.timing.ttl))
	defer cancel()
	err := k.session.Release(ctx, nonce)
	if errors.Is(err, engine.ErrLost) {
		return nil // it is free, which is all that was wanted
	}
	return err
}

// startDiscards releases in the background what is still to be released. The
// caller holds mu.
func (k *keeper) startDiscards() {
	for nonce, underWay := range k.discards {
		if underWay {
			continue
		}
		k.discards[nonce] = true
		k.client.background(func() { k.discardOne(nonce) })
	}
}

// discardOne releases one attempt, and tries until the service confirms or the
// session is over, at the pace of the keep-alives.
func (k *keeper) discardOne(nonce engine.Nonce) {
	for {
		err := k.cleanup(k.client.ctx, nonce)
		k.mu.Lock()
		if err == nil || k.gone != nil {
			delete(k.discards, nonce)
			k.mu.Unlock()
			k.poke()
			return
		}
		k.mu.Unlock()
		if sleep(k.client.ctx, k.timing.renew) != nil {
			return
		}
	}
}

// closeSession tells the service that nothing in the session is needed, unless
// it was the service that ended it. If it cannot be told the session expires.
func (k *keeper) closeSession() {
	k.mu.Lock()
	gone := k.gone
	k.mu.Unlock()
	if errors.Is(gone, engine.ErrLost) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.client.ctx), min(maxCleanup, k.timing.ttl))
	defer cancel()
	if err := k.session.Close(ctx); err != nil && !errors.Is(err, engine.ErrLost) {
		k.client.notTold(fmt.Errorf("session %s: %w", k.id, err))
	}
}
