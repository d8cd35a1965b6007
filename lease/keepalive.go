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

// keepAlive drives one session of the core: it opens the session at the engine, performs the
// actions that are due, and closes it. One goroutine serves any number of grants. The
// Client's mu guards the fields below wake.
type keepAlive struct {
	client  *Client
	core    *clientcore.Session
	opening chan struct{} // a mutex: held while the session is being opened
	wake    chan struct{}

	session     engine.Session  // nil until opened
	failures    int             // attempts to open it that failed
	failure     error           // of the last one
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

// open opens the session if it is not open. Concurrent callers wait for the one that opens it, and share its
// outcome: in an outage, tries one after the other would keep the last caller waiting for minutes.
func (k *keepAlive) open(ctx context.Context) error {
	c := k.client
	c.mu.Lock()
	failures := k.failures
	c.mu.Unlock()
	select {
	case k.opening <- struct{}{}:
		defer func() { <-k.opening }()
	case <-ctx.Done():
		return engine.Cause(ctx)
	}
	c.mu.Lock()
	open, failed, err := k.session != nil, k.failures > failures, k.failure
	c.mu.Unlock()
	switch {
	case open:
		return nil
	case failed:
		return err
	}
	sent, key := c.clock.Now(), k.core.Key()
	session, err := c.backend.Open(ctx, engine.SessionConfig{ID: k.core.ID(), TTL: key.TTL, Mode: key.Mode, Clock: c.clock,
		Lost: k.lost, Disconnected: k.disconnected})
	if err != nil {
		err = fmt.Errorf("open session: %w", err)
		if ctx.Err() == nil { // otherwise it says nothing to the others
			c.mu.Lock()
			k.failures, k.failure = k.failures+1, err
			c.mu.Unlock()
		}
		return err
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
		var actions clientcore.Actions
		c.update(func(now engine.Instant) []*clientcore.Grant {
			if actions = k.core.Step(now); actions.Renewal != nil {
				k.renewed = make(chan struct{})
			}
			return actions.Ended
		})
		if r := actions.Renewal; r != nil {
			c.work.Go(func() { _ = k.renew(c.ctx, r) })
		}
		for _, held := range actions.Release {
			c.work.Go(func() { k.releaseLater(held) })
		}
		if actions.Close {
			k.close()
			return
		}
		timer.Reset(actions.Next)
	}
}

// lost is the callback for losses that the engine reports.
func (k *keepAlive) lost(nonce engine.Nonce, err error) {
	k.client.update(func(engine.Instant) (lost []*clientcore.Grant) {
		if g := k.core.Lost(nonce, err); g != nil {
			lost = append(lost, g)
			k.wakeUp() // it may have to be released
		}
		return lost
	})
}

// disconnected is the callback for a connection that dropped. run looks within a second.
func (k *keepAlive) disconnected() {
	k.client.mu.Lock()
	defer k.client.mu.Unlock()
	k.core.Disconnected()
}

// renewNow sends a renewal, after any that is under way, and waits for it. The renewal serves all leases of the
// session, so it goes on when ctx ends.
func (k *keepAlive) renewNow(ctx context.Context) (*clientcore.Renewal, error) {
	c := k.client
	for {
		c.mu.Lock()
		r, err := k.core.StartRenewal(c.clock.Now())
		if r != nil {
			k.renewed = make(chan struct{})
			c.work.Add(1) // run has not ended, so Close has not stopped waiting
		}
		under := k.renewed
		c.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case r != nil:
			outcome := make(chan error, 1)
			go func() { defer c.work.Done(); outcome <- k.renew(releaseContext{c.ctx, ctx}, r) }()
			select {
			case err := <-outcome:
				return r, err
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", engine.ErrUncertain, engine.Cause(ctx))
			}
		}
		select {
		case <-under:
		case <-ctx.Done():
			return nil, engine.Cause(ctx)
		}
	}
}

// renew sends a renewal that was started, and calls the hook.
func (k *keepAlive) renew(ctx context.Context, r *clientcore.Renewal) error {
	c := k.client
	limited, cancel := context.WithTimeout(ctx, k.core.Key().Renew)
	extended, err := k.session.Renew(limited, r.Held...)
	cancel()
	c.update(func(engine.Instant) (ended []*clientcore.Grant) {
		if errors.Is(err, engine.ErrLost) { // the session has ended
			ended = k.core.End(err)
		}
		err = k.core.Renewed(r, extended, err)
		close(k.renewed)
		return ended
	})
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
	err := c.retry(ctx, c.clock.Now(), func(err error, _ time.Duration) bool { return clientcore.EndsLater(err) },
		func() error { return k.session.Close(ctx, held...) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !errors.Is(err, engine.ErrLost) && c.closed {
		c.closeErr = errors.Join(c.closeErr, fmt.Errorf("session %s: %w", k.core.ID(), err))
	}
}

// check ends a grant whose deadline has passed, and returns it then. The caller is the
// function of an update.
func (k *keepAlive) check(now engine.Instant, g *heldGrant) (expired []*clientcore.Grant) {
	if g.Check(now) {
		expired = append(expired, &g.Grant)
		k.wakeUp() // it is to be released
	}
	return expired
}

// update calls f with mu held, then reports the grants that f returns as lost. Close waits
// for the report: the grants were held, so their sessions are running.
func (c *Client) update(f func(now engine.Instant) (lost []*clientcore.Grant)) {
	now := c.clock.Now()
	c.mu.Lock()
	lost := f(now)
	if len(lost) > 0 { // even Add(0) must not meet the end of a Wait
		c.work.Add(len(lost))
	}
	c.mu.Unlock()
	if len(lost) > 0 {
		c.reportLost(now, lost)
	}
}

// reportLost ends the contexts of all leases of lost grants, then queues the calls of the
// hook Lost: a slow hook must not keep a context open. The caller does not hold mu.
func (c *Client) reportLost(now engine.Instant, lost []*clientcore.Grant) {
	leases := make([][]*Lease, len(lost))
	for i, g := range lost {
		leases[i] = g.Owner.(*heldGrant).cancelLeases()
	}
	if c.hooks.Lost == nil {
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
