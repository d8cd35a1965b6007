package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// Retries after split votes.
const (
	minSplitPause = time.Millisecond
	maxSplitPause = 32 * time.Millisecond
	// maxSplits bounds the retries of an acquire that does not wait.
	maxSplits = 5
)

// Acquire acquires a lease. Any process can renew and release it.
func (b *Backend) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration,
	request engine.Request) (engine.Held, error) {
	if err := b.checkSupported(ttl, &request); err != nil {
		return engine.Held{}, err
	}
	want := engine.Held{Session: session, Nonce: request.Nonce, Resources: request.Resources, TTL: ttl,
		Holder: request.Holder, User: request.User,
		Metadata: request.Metadata}
	var a *attempt
	var err error
	if request.Wait {
		a, err = b.acquireWaiting(ctx, want, request.Queued)
	} else {
		a, err = b.acquireNow(ctx, want)
	}
	if err != nil {
		return engine.Held{}, err
	}
	b.debug("granted", &a.Held)
	return a.Held, nil
}

// checkTTL refuses a TTL above the maximum: a node that lost its state waits that long before it votes.
func (b *Backend) checkTTL(ttl time.Duration) error {
	if ttl < engine.MinTTL || ttl > b.config.MaxTTL {
		return fmt.Errorf("%w: ttl (%v) must be from %v to the maximum of the efficiency mode (%v)", engine.ErrInvalid, ttl,
			engine.MinTTL, b.config.MaxTTL)
	}
	return nil
}

// checkSupported refuses requests that the efficiency mode does not support.
func (b *Backend) checkSupported(ttl time.Duration, request *engine.Request) error {
	if err := b.checkTTL(ttl); err != nil {
		return err
	}
	switch {
	case request.Mode == engine.Correctness:
		return &engine.ModeError{Resource: request.Resources[0], Want: request.Mode, Have: engine.Efficiency}
	case request.Kind != engine.Exclusive:
		return fmt.Errorf("%w: lock %q is in efficiency mode, which has exclusive leases and sets only; "+
			"use a lock in correctness mode for shared leases and permits", engine.ErrUnsupported, string(request.Resources[0]))
	}
	return nil
}

// acquireNow acquires a lock that is free. It tries again if concurrent attempts split
// the votes.
func (b *Backend) acquireNow(ctx context.Context, want engine.Held) (*attempt, error) {
	for splits := 0; ; splits++ {
		a, err := b.try(ctx, want, "", "")
		if !errors.Is(err, errSplit) {
			return a, err
		}
		if splits == maxSplits {
			return nil, fmt.Errorf("%w: others are acquiring it at the same time", engine.ErrHeld)
		}
		if err := engine.Sleep(ctx, splitPause(splits)); err != nil {
			return nil, err
		}
	}
}

// splitPause returns a random pause after the n-th split.
func splitPause(n int) time.Duration {
	return minSplitPause + rand.N(min(minSplitPause<<min(n, 5), maxSplitPause))
}

// authority is the version that a call acts under, and the servers that the version names.
type authority struct {
	version uint64
	// servers has the run of the server of each node. It is nil without a service: a call
	// then goes to the servers that the addresses lead to.
	servers []string
}

// authorize returns the authority of a call on these locks, which must be in efficiency
// mode, or of a call that only reads the nodes if there are none. A call that carries a version
// must follow the policies of that version.
func (b *Backend) authorize(resources []fencing.Resource) (authority, error) {
	if b.config.Topology == nil {
		return authority{version: recovery.StandaloneVersion}, nil
	}
	t := b.config.Topology()
	if len(resources) > 0 {
		mode, err := t.Route(&engine.Request{Resources: resources})
		switch {
		case err != nil:
			return authority{}, err
		case mode != engine.Efficiency:
			return authority{}, &engine.ModeError{Resource: resources[0], Want: engine.Efficiency, Have: mode}
		}
	}
	if last := b.authority.Load(); last != nil && last.version == t.Version {
		return *last, nil
	}
	if !t.Fleet.Equal(b.config.fleet()) {
		return authority{}, fmt.Errorf("%w: the Redis fleet has changed", engine.ErrUnavailable)
	}
	a := authority{version: t.Version, servers: make([]string, len(b.nodes))}
	for i, n := range b.nodes {
		if at := slices.Index(t.Fleet.Addresses, n.Addr()); at >= 0 && at < len(t.Lives) {
			a.servers[i] = recovery.ServerOf(t.Lives[at])
		}
	}
	b.authority.Store(&a)
	return a, nil
}

// try makes one attempt. The error matches engine.ErrHeld, errSplit,
// engine.ErrUnavailable or the context's.
func (b *Backend) try(ctx context.Context, want engine.Held, waiter, ticket string) (*attempt, error) {
	under, err := b.authorize(want.Resources)
	if err == nil {
		err = b.keeper.checkSuspect(ctx)
	}
	if err != nil {
		return nil, err
	}
	started := b.clock.Now()
	want.Name = attemptName(want.Session, want.Nonce, started.Time(), want.User)
	a := b.newAttempt(want, under)
	a.start(waiter, ticket)
	err = b.decide(ctx, a, started, waiter != "")
	if trace := engine.TraceOf(ctx); trace != nil && trace.Round != nil {
		trace.Round(a.round(started, err))
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// decide waits for the votes of an attempt that was sent at started. It ends the attempt
// if it is not granted.
func (b *Backend) decide(ctx context.Context, a *attempt, started engine.Instant, waits bool) error {
	if err := a.await(ctx, min(2*b.config.NodeTimeout, a.TTL/2)); err != nil {
		a.release(scripts.WakeNext) // other processes may have found the lock held, and wait
		return err
	}
	outcome, token := a.outcome()
	now := b.clock.Now()
	switch {
	case outcome == quorum.Granted && now.Since(started) < a.TTL-drift(a.TTL):
		a.Token, a.renewed = token, started
		b.grants.add(a)
		b.queues.held(a, now)
		time.AfterFunc(spreadAfter, func() { a.spreadGrant(now.Add(spreadAfter)) })
		return nil
	case outcome == quorum.Granted:
		a.release(scripts.WakeNext)
		return fmt.Errorf("%w: the votes took longer than the lease lasts", engine.ErrUnavailable)
	case waits:
		a.release(scripts.WakeNobody) // at once: others may need these votes
		a.awaitAll(ctx, b.config.NodeTimeout)
	default:
		a.release(scripts.WakeNext)
	}
	return a.refusal()
}
