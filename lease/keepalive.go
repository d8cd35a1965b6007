package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxTimer bounds how late a keepAlive notices that the machine was suspended,
	// because timers do not run then.
	maxTimer = time.Second
	// maxRelease bounds a release, and the close of a session.
	maxRelease = 5 * time.Second
)

// keepAlive keeps one session alive, with every grant and every attempt in it. One
// goroutine serves any number of grants.
//
// A grant ends at its deadline. Until a keep-alive covers it, the deadline counts
// from its own request; after that, from the last answered keep-alive. An attempt
// that ended here but perhaps not at the service is released in the background
// until the service confirms it.
type keepAlive struct {
	client *Client
	id     engine.SessionID
	timing timing
	fixed  bool // serves one lease, and does not renew it once it is granted

	opening  chan struct{} // a mutex: held while the session is being opened
	renewing chan struct{} // a mutex: held while a keep-alive is under way
	wake     chan struct{}

	mu          sync.Mutex
	session     engine.Session // nil until opened
	lastNonce   engine.Nonce
	users       int                    // acquisitions that use the session
	releasing   int                    // calls of Lease.Release that wait for the service
	attempts    map[engine.Nonce]error // open attempts; the error is a loss that overtook the grant
	grants      map[engine.Nonce]*heldGrant
	uncovered   map[engine.Nonce]*heldGrant // the grants that no keep-alive covers yet
	releases    map[engine.Nonce]bool       // to be confirmed by the service; true while a call is under way
	lastRenewed engine.Instant              // before the last answered keep-alive was sent
	lastSent    engine.Instant              // before the last keep-alive was sent
	failing     bool                        // the last keep-alive failed
	round       uint64                      // number of keep-alives sent
	lastUsed    engine.Instant              // when there was last a grant or a user
	over        error                       // why the session ended, nil while it lives
	releaseTime context.Context             // ends the calls of Lease.Release that begin now; nil if the next one makes it
}

func newKeepAlive(c *Client, t timing, fixed bool) *keepAlive {
	return &keepAlive{
		client: c, id: engine.NewSessionID(), timing: t, fixed: fixed,
		opening: make(chan struct{}, 1), renewing: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		attempts: map[engine.Nonce]error{}, grants: map[engine.Nonce]*heldGrant{}, uncovered: map[engine.Nonce]*heldGrant{}, releases: map[engine.Nonce]bool{},
	}
}

// open opens the session if it is not open. Concurrent callers wait for the one
// that opens it, and try themselves if it fails.
func (k *keepAlive) open(ctx context.Context) error {
	if k.isOpen() {
		return nil
	}
	select {
	case k.opening <- struct{}{}:
		defer func() { <-k.opening }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if k.isOpen() {
		return nil
	}
	sent := k.client.clock.Now()
	session, err := k.client.backend.Open(ctx, engine.SessionConfig{ID: k.id, TTL: k.timing.ttl, Clock: k.client.clock, Lost: k.lost})
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	k.mu.Lock()
	k.session, k.lastRenewed, k.lastSent, k.lastUsed = session, sent, sent, sent
	k.mu.Unlock()
	k.client.work.Go(k.run)
	return nil
}

func (k *keepAlive) isOpen() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session != nil
}

// newNonce begins an attempt. The caller ends it with endAttempt or accept.
func (k *keepAlive) newNonce() engine.Nonce {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastNonce++
	k.attempts[k.lastNonce] = nil
	return k.lastNonce
}

// endAttempt ends an attempt without a grant. Unless err is a certain refusal the
// attempt is released, so that the service does not grant it later.
func (k *keepAlive) endAttempt(nonce engine.Nonce, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.attempts, nonce)
	if !engine.Refused(err) {
		k.releaseLater(nonce)
	}
}

// accept turns a grant into a lease, unless the grant has ended by now.
func (k *keepAlive) accept(ctx context.Context, g *heldGrant, now engine.Instant) (*Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g.round, g.since = k.round, now
	err := k.attempts[g.nonce]
	switch {
	case k.over != nil:
		err = k.over
	case err != nil: // the loss arrived before the grant
	case !g.grant.Token.Valid():
		err = fmt.Errorf("%w: the service granted the invalid token %d", engine.ErrUncertain, g.grant.Token)
	case g.request.Mode != engine.AnyMode && g.grant.Mode != g.request.Mode:
		err = &engine.ModeError{Resource: g.named, Want: g.request.Mode, Have: g.grant.Mode}
	case now.Until(k.deadline(g)) <= 0:
		err = fmt.Errorf("%w before the grant arrived", engine.ErrExpired)
	}
	delete(k.attempts, g.nonce)
	if err != nil {
		k.releaseLater(g.nonce)
		return nil, err
	}
	k.grants[g.nonce] = g
	k.uncovered[g.nonce] = g
	if now.Until(k.deadline(g)) < maxTimer {
		k.wakeUp() // otherwise run wakes up early enough
	}
	return g.add(&g.first, ctx), nil
}

// deadline returns when g ends if it is not renewed. The caller holds mu.
func (k *keepAlive) deadline(g *heldGrant) engine.Instant {
	from := g.sent
	if g.covered {
		from = k.lastRenewed
	}
	return from.Add(k.timing.validity())
}

// check returns why l has ended, nil if it has not. It reads the clock itself
// because timers may be late.
func (k *keepAlive) check(l *Lease) error {
	now := k.client.clock.Now()
	k.mu.Lock()
	ended := k.expire(now, l.grant)
	err := l.cause()
	k.mu.Unlock()
	k.reportLost(now, ended)
	return err
}

// expire ends those of the grants whose deadline has passed, and returns them. The
// caller holds mu, and calls reportLost with the result when it no longer does.
func (k *keepAlive) expire(now engine.Instant, grants ...*heldGrant) []*heldGrant {
	var ended []*heldGrant
	for _, g := range grants {
		if g.ended == nil && now.Until(k.deadline(g)) <= 0 {
			k.lose(g, engine.ErrExpired)
			k.releaseLater(g.nonce)
			ended = append(ended, g)
		}
	}
	return ended
}

// end marks g as ended. The caller holds mu.
func (k *keepAlive) end(g *heldGrant, err error) {
	g.ended = err
	delete(k.grants, g.nonce)
	delete(k.uncovered, g.nonce)
}

// lose marks g as lost. The caller holds mu, and calls reportLost when it no longer does.
// Until then Close of the client waits: g was held, so the keep-alive is running.
func (k *keepAlive) lose(g *heldGrant, err error) {
	k.end(g, err)
	k.client.work.Add(1)
}

// reportLost ends the contexts of all leases of lost grants, then has the hooks called: a
// slow hook must not keep a context open. The caller does not hold mu.
func (k *keepAlive) reportLost(now engine.Instant, lost []*heldGrant) {
	leases := make([][]*Lease, len(lost))
	for i, g := range lost {
		leases[i] = g.cancelLeases()
	}
	if k.client.hooks.Lost == nil || len(lost) == 0 {
		k.client.work.Add(-len(lost))
		return
	}
	k.client.losses.add(func() {
		for i, g := range lost {
			for _, l := range leases[i] {
				k.client.hooks.Lost(l.Context(), g.event(now, g.ended))
			}
			k.client.work.Done()
		}
	})
}

// lost is the callback for losses that the backend reports.
func (k *keepAlive) lost(nonce engine.Nonce, err error) {
	if !errors.Is(err, engine.ErrLost) {
		err = fmt.Errorf("%w: %w", engine.ErrNotHeld, err)
	}
	k.mu.Lock()
	g := k.grants[nonce]
	if g != nil {
		k.lose(g, err)
	} else if _, open := k.attempts[nonce]; open {
		k.attempts[nonce] = err
	}
	k.mu.Unlock()
	if g != nil {
		k.reportLost(k.client.clock.Now(), []*heldGrant{g})
	}
}

// endSession ends the session and every grant in it.
func (k *keepAlive) endSession(err error) {
	k.client.removeKeepAlive(k)
	k.mu.Lock()
	if k.over == nil {
		k.over = err
	}
	ended := slices.Collect(maps.Values(k.grants))
	for _, g := range ended {
		k.lose(g, err)
	}
	clear(k.releases)
	k.mu.Unlock()
	k.reportLost(k.client.clock.Now(), ended)
	k.wakeUp()
}

// wakeUp makes run look again. The caller may hold mu.
func (k *keepAlive) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// isOver reports whether the session has ended.
func (k *keepAlive) isOver() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.over != nil
}
