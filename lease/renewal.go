package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// run is the watchdog: it renews the session, ends holds at their deadlines,
// and releases what was discarded, until there is nothing left to keep.
func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.client.ctx.Done():
			k.over(ErrClosed)
		}
		nap, again := k.tick(k.client.clock.Now())
		if !again {
			k.closeSession()
			return
		}
		timer.Reset(nap)
	}
}

// tick does what is due now. It says how long to nap, and whether there is any
// reason to wake up again.
func (k *keeper) tick(now engine.Instant) (nap time.Duration, again bool) {
	k.mu.Lock()
	ended := k.expire(now, k.due(now)...)
	nap = min(maxNap, k.untilDeadline(now))

	busy := len(k.holds) > 0 || k.users > 0
	if busy {
		k.used = now
	}
	if k.wantsRenewal() {
		every := k.timing.renew
		if k.failing {
			every /= 4 // there is no time to lose
		}
		if left := now.Until(k.tried.Add(every)); left > 0 {
			nap = min(nap, left)
		} else if len(k.renewing) == 0 {
			k.client.background(func() { _ = k.renew(k.client.ctx) })
		}
	}
	k.startDiscards()
	idle := k.gone != nil || !busy && now.Since(k.used) >= k.linger()
	k.mu.Unlock()

	k.tell(now, ended)
	if idle && k.client.retire(k) {
		return 0, false
	}
	return max(nap, time.Millisecond), true
}

// due is which holds can have reached their deadline. The caller holds mu.
func (k *keeper) due(now engine.Instant) []*hold {
	sessionOver := now.Until(k.renewed.Add(k.timing.validity())) <= 0
	var holds []*hold
	for _, h := range k.young {
		holds = append(holds, h)
	}
	if sessionOver && len(k.holds) > len(k.young) {
		for _, h := range k.holds {
			if h.settled {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// untilDeadline is the time to the next deadline. The caller holds mu.
func (k *keeper) untilDeadline(now engine.Instant) time.Duration {
	next := time.Duration(maxNap)
	if len(k.holds) > len(k.young) {
		next = min(next, now.Until(k.renewed.Add(k.timing.validity())))
	}
	for _, h := range k.young {
		next = min(next, now.Until(k.deadline(h)))
	}
	return next
}

// wantsRenewal: a fixed lease is not renewed, but who waits for one is. What is
// only to be discarded is not worth a renewal: it may well expire. The caller
// holds mu.
func (k *keeper) wantsRenewal() bool {
	switch {
	case k.gone != nil:
		return false
	case k.fixed:
		return k.users > 0 && len(k.holds) == 0
	case len(k.holds) > 0 || k.users > 0:
		return true
	}
	return len(k.discards) == 0
}

// linger is how long an unused session is kept: for the next acquisition, and
// for releases that the service has not confirmed. After one TTL without a
// keep-alive the service lets go of them by itself. The caller holds mu.
func (k *keeper) linger() time.Duration {
	if k.fixed && len(k.discards) == 0 {
		return 0
	}
	return k.timing.ttl
}

// renew sends one keep-alive, after any that is under way, and reports it.
func (k *keeper) renew(ctx context.Context) error {
	select {
	case k.renewing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	report, err := k.renewOnce(ctx)
	<-k.renewing
	k.poke()
	if report.Session == k.id {
		emit(k.client.hooks.Renewed, report)
	}
	return err
}

// renewOnce sends one keep-alive. The caller holds renewing. The report is zero
// if nothing was sent.
func (k *keeper) renewOnce(ctx context.Context) (Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timing.renew)
	defer cancel()

	sent := k.client.clock.Now()
	k.mu.Lock()
	if k.gone != nil {
		defer k.mu.Unlock()
		return Renewal{}, k.gone
	}
	k.tried = sent
	k.round++
	round, leases := k.round, len(k.holds)
	k.mu.Unlock()

	failed, err := k.session.Renew(ctx)

	switch {
	case errors.Is(err, engine.ErrLost):
		k.over(err)
	case err == nil:
		k.prolong(round, sent, failed)
		if len(failed) > 0 {
			err = fmt.Errorf("%w: %d of %d leases were not renewed", engine.ErrUnavailable, len(failed), leases)
		}
	}
	k.mu.Lock()
	k.failing = err != nil
	k.mu.Unlock()
	return Renewal{Session: k.id, Leases: leases, Elapsed: k.client.clock.Now().Since(sent), Err: err}, err
}

// prolong notes that a keep-alive was answered: everything that was held when
// it was sent, but for the failed, counts from then.
func (k *keeper) prolong(round uint64, sent engine.Instant, failed []engine.Nonce) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, nonce := range failed {
		h := k.holds[nonce]
		if h == nil {
			continue
		}
		if h.settled {
			h.settled, h.sent = false, k.renewed
			k.young[nonce] = h
		}
		h.round = round
	}
	k.renewed = sent
	for nonce, h := range k.young {
		if h.round < round {
			h.settled = true
			delete(k.young, nonce)
		}
	}
}

// renewLease is Lease.Renew.
func (k *keeper) renewLease(ctx context.Context, l *Lease) error {
	if err := k.check(l); err != nil {
		return err
	}
	renewErr := k.renew(ctx)
	if err := k.check(l); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if renewErr != nil && l.hold.settled && k.renewed == k.tried {
		return nil // others failed, not this one
	}
	return renewErr
}
