package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// maxRelease bounds a release, and the close of a session.
const maxRelease = 5 * time.Second

// keepAlive runs one session of the core: it opens the session at the engine, performs the
// actions that are due, and closes it. One goroutine serves any number of grants. The Client's mu guards
// the fields below it.
type keepAlive struct {
	client  *Client
	core    *clientcore.Session
	opening chan struct{} // a mutex: held while the session is being opened
	wake    chan struct{}

	session     engine.Session  // nil until opened
	renewed     chan struct{}   // closed when the renewal under way has ended
	releaseTime context.Context // ends the calls of Lease.Release that begin now; nil if the next one makes it
}

// keepAliveOf returns the keepAlive of a session. The caller holds mu.
func (c *Client) keepAliveOf(s *clientcore.Session) *keepAlive {
	if s.Owner == nil {
		s.Owner = &keepAlive{client: c, core: s, opening: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	}
	return s.Owner.(*keepAlive)
}

// open opens the session if it is not open. Concurrent callers wait for the one
// that opens it, and try themselves if it fails.
func (k *keepAlive) open(ctx context.Context) error {
	select {
	case k.opening <- struct{}{}:
		defer func() { <-k.opening }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c := k.client
	c.mu.Lock()
	open := k.session != nil
	c.mu.Unlock()
	if open {
		return nil
	}
	sent, key := c.clock.Now(), k.core.Key()
	session, err := c.backend.Open(ctx, engine.SessionConfig{ID: k.core.ID(), TTL: key.TTL, Mode: key.Mode, Clock: c.clock,
		Lost: k.lost})
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	c.mu.Lock()
	k.session = session
	k.core.Opened(sent)
	c.mu.Unlock()
	c.work.Go(k.run)
	return nil
}

// wakeUp makes run look again. The caller may hold mu.
func (k *keepAlive) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run performs the actions that are due in the session, until the session is no longer needed.
func (k *keepAlive) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	c := k.client
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		}
		now := c.clock.Now()
		c.mu.Lock()
		actions := k.core.Step(now)
		c.losing(actions.Ended)
		if actions.Renewal != nil {
			k.renewed = make(chan struct{})
		}
		c.mu.Unlock()
		if r := actions.Renewal; r != nil {
			c.work.Go(func() { _ = k.renew(c.ctx, r) })
		}
		for _, held := range actions.Release {
			c.work.Go(func() { k.releaseLater(held) })
		}
		c.reportLost(now, actions.Ended)
		if actions.Close {
			k.close()
			return
		}
		timer.Reset(actions.Next)
	}
}

// lost is the callback for losses that the engine reports.
func (k *keepAlive) lost(nonce engine.Nonce, err error) {
	c := k.client
	c.mu.Lock()
	var lost []*clientcore.Grant
	if g := k.core.Lost(nonce, err); g != nil {
		lost = []*clientcore.Grant{g}
		k.wakeUp() // it may have to be released
	}
	c.losing(lost)
	c.mu.Unlock()
	c.reportLost(c.clock.Now(), lost)
}

// endSession ends the session and every grant in it.
func (k *keepAlive) endSession(err error) {
	c := k.client
	c.mu.Lock()
	ended := k.core.End(err)
	c.losing(ended)
	c.mu.Unlock()
	c.reportLost(c.clock.Now(), ended)
	k.wakeUp()
}

// renewNow sends a renewal, after any that is under way.
func (k *keepAlive) renewNow(ctx context.Context) (*clientcore.Renewal, error) {
	c := k.client
	for {
		c.mu.Lock()
		r, err := k.core.StartRenewal(c.clock.Now())
		if r != nil {
			k.renewed = make(chan struct{})
		}
		under := k.renewed
		c.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case r != nil:
			return r, k.renew(ctx, r)
		}
		select {
		case <-under:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// renew sends a renewal that was started, and calls the hook.
func (k *keepAlive) renew(ctx context.Context, r *clientcore.Renewal) error {
	c := k.client
	limited, cancel := context.WithTimeout(ctx, k.core.Key().Renew)
	extended, err := k.session.Renew(limited, r.Held...)
	cancel()
	if errors.Is(err, engine.ErrLost) {
		k.endSession(err)
	}
	c.mu.Lock()
	err = k.core.Renewed(r, extended, err)
	close(k.renewed)
	c.mu.Unlock()
	k.wakeUp()
	if c.hooks.Renewed != nil {
		c.hooks.Renewed(Renewal{Session: k.core.ID(), Leases: r.Leases, Elapsed: c.clock.Now().Since(r.Sent), Err: err})
	}
	return err
}

// releaseLater releases an attempt once, in the background.
func (k *keepAlive) releaseLater(held engine.Held) {
	c := k.client
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), min(maxRelease, k.core.Key().TTL))
	defer cancel()
	err := k.session.Release(ctx, held)
	c.mu.Lock()
	k.core.ReleasedLater(c.clock.Now(), held.Nonce, err)
	c.mu.Unlock()
	k.wakeUp()
}

// close closes the session at the service, unless the service ended it. A session that
// cannot be closed ends with its TTL.
func (k *keepAlive) close() {
	c := k.client
	c.mu.Lock()
	held, needed := k.core.Closing()
	c.mu.Unlock()
	if !needed {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), min(maxRelease, k.core.Key().TTL))
	defer cancel()
	err := c.retry(ctx, c.clock.Now(), func(err error, _ time.Duration) bool { return clientcore.Transient(err) },
		func() error { return k.session.Close(ctx, held...) })
	if err != nil && !errors.Is(err, engine.ErrLost) {
		c.sessionNotClosed(fmt.Errorf("session %s: %w", k.core.ID(), err))
	}
}

// check ends a grant whose deadline has passed, and returns it then. The caller holds mu,
// and calls reportLost when it no longer does.
func (k *keepAlive) check(now engine.Instant, g *heldGrant) (expired []*clientcore.Grant) {
	if g.Check(now) {
		expired = []*clientcore.Grant{&g.Grant}
		k.client.losing(expired)
		k.wakeUp() // it is to be released
	}
	return expired
}

// losing makes Close wait for the report of lost grants. The caller holds mu, and calls
// reportLost when it no longer does. The grants were held, so their sessions are running.
func (c *Client) losing(lost []*clientcore.Grant) { c.work.Add(len(lost)) }

// reportLost ends the contexts of all leases of lost grants, then has the hooks called: a
// slow hook must not keep a context open. The caller does not hold mu.
func (c *Client) reportLost(now engine.Instant, lost []*clientcore.Grant) {
	leases := make([][]*Lease, len(lost))
	for i, g := range lost {
		leases[i] = g.Owner.(*heldGrant).cancelLeases()
	}
	if c.hooks.Lost == nil || len(lost) == 0 {
		c.work.Add(-len(lost))
		return
	}
	c.losses.add(func() {
		for i, g := range lost {
			for _, l := range leases[i] {
				c.hooks.Lost(l.Context(), l.grant.event(now, g.Err()))
			}
			c.work.Done()
		}
	})
}
