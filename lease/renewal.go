package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// run renews the session, ends grants at their deadlines and releases attempts in
// the background, until the session is no longer needed.
func (k *keepAlive) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.client.ctx.Done():
			k.endSession(ErrClosed)
		}
		next, again := k.step(k.client.clock.Now())
		if !again {
			k.closeSession()
			return
		}
		timer.Reset(next)
	}
}

// step performs the actions that are due. It returns the time until the next step, and whether
// there is one.
func (k *keepAlive) step(now engine.Instant) (next time.Duration, again bool) {
	k.mu.Lock()
	ended := k.expire(now, k.mayBeDue(now)...)
	next = min(maxTimer, k.untilDeadline(now))

	busy := len(k.grants) > 0 || k.users > 0
	if busy {
		k.lastUsed = now
	}
	if k.wantsRenewal() {
		every := k.timing.renew
		if k.failing {
			every /= 4 // the lease may end before the next regular keep-alive
		}
		if left := now.Until(k.lastSent.Add(every)); left > 0 {
			next = min(next, left)
		} else if len(k.renewing) == 0 {
			k.client.work.Go(func() { _ = k.renew(k.client.ctx) })
		}
	}
	k.startReleases()
	idle := k.over != nil || !busy && now.Since(k.lastUsed) >= k.idleTime()
	k.mu.Unlock()

	k.reportLost(now, ended)
	if idle && k.client.retireKeepAlive(k) {
		return 0, false
	}
	return max(next, time.Millisecond), true
}

// mayBeDue returns the grants that can have reached their deadline. The caller
// holds mu.
func (k *keepAlive) mayBeDue(now engine.Instant) []*heldGrant {
	sessionDue := now.Until(k.lastRenewed.Add(k.timing.validity())) <= 0
	grants := slices.Collect(maps.Values(k.uncovered))
	if sessionDue && len(k.grants) > len(k.uncovered) {
		for _, g := range k.grants {
			if g.covered {
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// untilDeadline returns the time to the next deadline. The caller holds mu.
func (k *keepAlive) untilDeadline(now engine.Instant) time.Duration {
	next := time.Duration(maxTimer)
	if len(k.grants) > len(k.uncovered) {
		next = min(next, now.Until(k.lastRenewed.Add(k.timing.validity())))
	}
	for _, g := range k.uncovered {
		next = min(next, now.Until(k.deadline(g)))
	}
	return next
}

// wantsRenewal reports whether the session needs keep-alives. A lease without
// renewal needs them only while it waits for its grant. Attempts that are only to be
// released need none: they may expire. The caller holds mu.
func (k *keepAlive) wantsRenewal() bool {
	switch {
	case k.over != nil:
		return false
	case k.fixed:
		return k.users > 0 && len(k.grants) == 0
	case len(k.grants) > 0 || k.users > 0:
		return true
	}
	return len(k.releases) == 0 && k.releasing == 0
}

// idleTime returns how long an unused session is kept, for the next acquisition and
// for releases that the service has not confirmed. After one TTL without a
// keep-alive the service ends the session itself. The caller holds mu.
func (k *keepAlive) idleTime() time.Duration {
	if k.fixed && len(k.releases) == 0 && k.releasing == 0 {
		return 0
	}
	return k.timing.ttl
}

// renew sends one keep-alive, after any that is under way, and calls the hook.
func (k *keepAlive) renew(ctx context.Context) error {
	select {
	case k.renewing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	report, err := k.renewOnce(ctx)
	<-k.renewing
	k.wakeUp()
	if hook := k.client.hooks.Renewed; hook != nil && report.Session == k.id {
		hook(report)
	}
	return err
}

// renewOnce sends one keep-alive. The caller holds renewing. The report is zero if
// nothing was sent.
func (k *keepAlive) renewOnce(ctx context.Context) (Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timing.renew)
	defer cancel()

	sent := k.client.clock.Now()
	k.mu.Lock()
	if k.over != nil {
		defer k.mu.Unlock()
		return Renewal{}, k.over
	}
	k.lastSent = sent
	k.round++
	round, leases := k.round, len(k.grants)
	k.mu.Unlock()

	extended, err := k.session.Renew(ctx)

	switch {
	case errors.Is(err, engine.ErrLost):
		k.endSession(err)
	case err == nil:
		if missed := k.extend(round, sent, extended); missed > 0 {
			err = fmt.Errorf("%w: %d of %d leases were not renewed", engine.ErrUnavailable, missed, leases)
		}
	}
	k.mu.Lock()
	k.failing = err != nil
	k.mu.Unlock()
	return Renewal{Session: k.id, Leases: leases, Elapsed: k.client.clock.Now().Since(sent), Err: err}, err
}

// extend records an answered keep-alive: the deadline of every grant that it extended, and
// that was held when it was sent, counts from then. It returns the number of grants that
// were held and not extended: they keep their deadline.
func (k *keepAlive) extend(round uint64, sent engine.Instant, extended []engine.Nonce) (missed int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, nonce := range extended {
		if g := k.grants[nonce]; g != nil && g.round < round {
			g.extended = round
		}
	}
	for nonce, g := range k.grants {
		switch {
		case g.extended == round:
			g.covered = true
			delete(k.uncovered, nonce)
			continue
		case g.covered:
			g.covered, g.sent = false, k.lastRenewed
			k.uncovered[nonce] = g
		}
		if g.round < round {
			missed++
		}
	}
	k.lastRenewed = sent
	return missed
}

// renewLease implements Lease.Renew.
func (k *keepAlive) renewLease(ctx context.Context, l *Lease) error {
	if err := k.check(l); err != nil {
		return err
	}
	renewErr := k.renew(ctx)
	if err := k.check(l); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if renewErr != nil && l.grant.covered && k.lastRenewed == k.lastSent {
		return nil // other leases failed, not this one
	}
	return renewErr
}
