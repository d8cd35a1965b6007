package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Retries of an attempt whose votes were split.
const (
	minSplitPause = time.Millisecond
	maxSplitPause = 32 * time.Millisecond
	// trySplits bounds the retries of an acquire that does not wait.
	trySplits = 5
)

// Acquire takes a lock for a caller whose session lives elsewhere. Nothing is
// kept here: the caller renews and releases what it gets, through this process or
// another.
func (b *Backend) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, engine.Grant, error) {
	a, err := b.acquire(ctx, nil, engine.SystemClock(), session, ttl, &request)
	if err != nil {
		return engine.Held{}, engine.Grant{}, err
	}
	return a.Held, a.grant(), nil
}

func (a *attempt) grant() engine.Grant {
	return engine.Grant{Token: a.Token, Mode: engine.Efficiency, Sent: a.sent}
}

// acquire tries until the outcome is certain, or ctx ends. A waiter also gives up
// when gone is closed.
func (b *Backend) acquire(ctx context.Context, gone <-chan struct{}, clock engine.Clock, session engine.SessionID, ttl time.Duration, request *engine.Request) (*attempt, error) {
	if err := b.check(ttl, request); err != nil {
		return nil, err
	}
	want := engine.Held{Session: session, Nonce: request.Nonce, Resources: request.Resources, TTL: ttl, Holder: request.Holder, Metadata: request.Metadata}
	if request.Wait {
		return b.acquireInTurn(ctx, gone, clock, want, request.Queued)
	}
	for splits := 0; ; splits++ {
		a, err := b.try(ctx, clock, want, "", "")
		if err == nil || !errors.Is(err, errSplit) {
			return a, err
		}
		if splits == trySplits {
			return nil, fmt.Errorf("%w: others are acquiring it at the same time", engine.ErrHeld)
		}
		if err := b.pause(ctx, splitPause(splits)); err != nil {
			return nil, err
		}
	}
}

// check refuses what this mode does not provide.
func (b *Backend) check(ttl time.Duration, request *engine.Request) error {
	if err := request.Validate(); err != nil {
		return err
	}
	if err := b.checkTTL(ttl); err != nil {
		return err
	}
	if request.Mode == engine.Correctness {
		return &engine.ModeError{Resource: request.Resources[0], Want: request.Mode, Have: engine.Efficiency}
	}
	if request.Kind != engine.Exclusive {
		return fmt.Errorf("%w: lock %q is in efficiency mode, which has exclusive leases and sets only; "+
			"use a lock in correctness mode for shared leases and permits", engine.ErrUnsupported, string(request.Resources[0]))
	}
	return nil
}

func (b *Backend) checkTTL(ttl time.Duration) error {
	if ttl < engine.MinTTL || ttl > b.config.MaxTTL {
		return fmt.Errorf("%w: ttl (%v) must be from %v to the longest of the efficiency mode (%v)", engine.ErrInvalid, ttl, engine.MinTTL, b.config.MaxTTL)
	}
	return nil
}

// authorize returns the version under which these locks are in efficiency mode.
// A call that carries a version must follow the policies of that version.
func (b *Backend) authorize(resources []fencing.Resource) (version uint64, err error) {
	if b.config.Topology == nil {
		return standaloneVersion, nil
	}
	t := b.config.Topology()
	mode, err := t.Route(&engine.Request{Resources: resources})
	switch {
	case err != nil:
		return 0, err
	case mode != engine.Efficiency:
		return 0, &engine.ModeError{Resource: resources[0], Want: engine.Efficiency, Have: mode}
	case !t.Fleet.Equal(b.config.fleet()):
		return 0, fmt.Errorf("%w: the Redis fleet has changed", engine.ErrUnavailable)
	}
	return t.Version, nil
}

// try makes one attempt. The error matches engine.ErrHeld, errSplit,
// engine.ErrUnavailable or the context's.
func (b *Backend) try(ctx context.Context, clock engine.Clock, want engine.Held, waiter, ticket string) (*attempt, error) {
	version, err := b.authorize(want.Resources)
	if err != nil {
		return nil, err
	}
	want.Name = b.attemptName(want.Session, want.Nonce)
	a := b.newAttempt(want, version)
	a.send(clock, waiter, ticket)
	if err = a.await(ctx, min(2*b.config.NodeTimeout, want.TTL/2)); err != nil {
		a.withdraw(wakeNext) // others may have found the lock held, and wait
		return nil, err
	}
	outcome, token := a.outcome()
	switch {
	case outcome == quorum.Granted && clock.Now().Since(a.sent) < want.TTL-drift(want.TTL):
		a.Token, a.renewed = token, b.clock.Now()
		b.granted.add(a)
		b.queues.held(a)
		return a, nil
	case outcome == quorum.Granted:
		a.release(wakeNext)
		return nil, fmt.Errorf("%w: the votes took longer than the lease lasts", engine.ErrUnavailable)
	case waiter != "":
		a.withdraw(wakeNone) // at once: others may need these votes
		a.hear(ctx, b.config.NodeTimeout)
	default:
		a.withdraw(wakeNext)
	}
	return nil, a.refusal()
}

func splitPause(n int) time.Duration {
	return minSplitPause + rand.N(min(minSplitPause<<min(n, 5), maxSplitPause))
}

func (b *Backend) pause(ctx context.Context, d time.Duration) error {
	timer := b.startTimer(d)
	defer b.stopTimer(timer)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// acquireInTurn waits for the request's turn in this process, and then for the
// lock.
func (b *Backend) acquireInTurn(ctx context.Context, gone <-chan struct{}, clock engine.Clock, want engine.Held, queued func()) (*attempt, error) {
	w := b.queues.join(want)
	defer b.queues.leave(w)
	splits, waiter, ticket := 0, "", "" // a lock that is free needs no ticket
	for {
		nap := b.queues.ready(w)
		if nap == 0 {
			a, err := b.try(ctx, clock, want, waiter, ticket)
			var held *heldError
			switch {
			case err == nil:
				return a, nil
			case errors.As(err, &held) && ticket == "":
				waiter, ticket = b.waiterName(want.Holder), b.newTicket()
				continue
			case errors.As(err, &held):
				b.queues.postpone(w, min(held.after, maxSleep+rand.N(maxSleep))+time.Millisecond+rand.N(maxJitter))
				splits = 0
			case errors.Is(err, errSplit):
				b.queues.postpone(w, splitPause(splits))
				splits++
			default:
				return nil, err
			}
			nap = b.queues.ready(w)
		}
		if queued != nil && nap > 0 {
			queued()
			queued = nil
		}
		timer := b.startTimer(nap)
		select {
		case <-w.signal:
		case <-timer.C:
		case <-gone:
			b.stopTimer(timer)
			return nil, endedError(want.Nonce)
		case <-ctx.Done():
			b.stopTimer(timer)
			return nil, context.Cause(ctx)
		}
		b.stopTimer(timer)
	}
}
