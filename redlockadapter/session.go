package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Retries of an attempt whose votes were split.
const (
	minSplitPause = time.Millisecond
	maxSplitPause = 32 * time.Millisecond
	// trySplits is how often who does not want to wait tries all the same.
	trySplits = 5
	// tryEpochs is how often an attempt may meet a new epoch.
	tryEpochs = 5
	// trySlots is how often it may find its slot taken and another one free.
	trySlots = 5
)

// session is a lease.Session. It lives in this process: it owns the grants that
// were acquired through it, and decides alone what became of an attempt, since
// only its process counts the votes.
type session struct {
	backend *Backend
	config  lease.SessionConfig
	id      string
	ttl     time.Duration
	ttlText string
	head    atomic.Pointer[acquireHead]
	tries   atomic.Uint64

	mu      sync.Mutex
	closed  bool
	known   map[lease.Nonce]*entry
	ended   [2]map[lease.Nonce]bool  // released lately, and before
	leaving map[lease.Nonce]*attempt // released, but not confirmed yet
	rotated lease.Instant
}

// entry is what the session knows of a nonce.
type entry struct {
	working  bool          // one call of Acquire works on it
	free     chan struct{} // if another one waits: closed when it does not any more
	released bool
	gone     chan struct{} // if someone waits: closed when it is released
	granted  *attempt
	dropped  bool // it was granted, and the call that works on it looks whether it can be had back
}

func newSession(b *Backend, config lease.SessionConfig) *session {
	return &session{backend: b, config: config, id: config.ID.String(), ttl: config.TTL,
		ttlText: strconv.FormatInt(config.TTL.Milliseconds(), 10), known: map[lease.Nonce]*entry{},
		leaving: map[lease.Nonce]*attempt{}, rotated: b.clock.Now()}
}

// acquireHead is what the acquires of a session in one epoch have in common.
type acquireHead struct {
	epoch string
	args  args
}

func (s *session) headOf(epoch string) args {
	h := s.head.Load()
	if h == nil || h.epoch != epoch {
		h = &acquireHead{epoch, newArgs(epoch, s.ttlText)}
		s.head.Store(h)
	}
	return h.args
}

// drift is what Redlock takes off a validity for clocks that differ in rate.
func (s *session) drift() time.Duration { return s.ttl/100 + 2*time.Millisecond }

// begin finds the entry of a nonce, or makes it, and waits for its turn to work
// on it. finish must follow.
func (s *session) begin(ctx context.Context, nonce lease.Nonce) (*entry, error) {
	for {
		e, free, err := s.enter(nonce)
		if free == nil {
			return e, err
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// enter is begin without the waiting: free is not nil if someone works on it.
func (s *session) enter(nonce lease.Nonce) (e *entry, free chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("%w: the session is closed", lease.ErrNotHeld)
	}
	if s.ended[0][nonce] || s.ended[1][nonce] {
		return nil, nil, attemptEnded(nonce)
	}
	e = s.known[nonce]
	if e == nil {
		e = &entry{}
		s.known[nonce] = e
	}
	if e.working {
		if e.free == nil {
			e.free = make(chan struct{})
		}
		return nil, e.free, nil
	}
	e.working = true
	return e, nil, nil
}

// finish lets the next one work on an entry. One that came to nothing is
// forgotten: nobody holds it, and if it is asked again it is tried again.
func (s *session) finish(nonce lease.Nonce, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.working, e.dropped = false, false
	if e.free != nil {
		close(e.free)
		e.free = nil
	} else if s.known[nonce] == e && e.granted == nil {
		delete(s.known, nonce)
	}
}

// goneOf is closed when an entry is released.
func (s *session) goneOf(e *entry) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.gone == nil {
		e.gone = make(chan struct{})
		if e.released {
			close(e.gone)
		}
	}
	return e.gone
}

func attemptEnded(nonce lease.Nonce) error {
	return fmt.Errorf("%w: attempt %d has ended", lease.ErrHeld, nonce)
}

// Acquire asks for a grant.
func (s *session) Acquire(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if err := s.check(&request); err != nil {
		return lease.Grant{}, err
	}
	e, err := s.begin(ctx, request.Nonce)
	if err != nil {
		return lease.Grant{}, err
	}
	defer s.finish(request.Nonce, e)
	a := s.grantOf(e)
	if a != nil {
		a, err = s.askedAgain(ctx, &request, e, a)
	} else {
		a, err = s.acquire(ctx, &request, e)
	}
	if err != nil {
		return lease.Grant{}, err
	}
	return s.grant(a), nil
}

// grant is what is answered for an attempt that was granted.
func (s *session) grant(a *attempt) lease.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lease.Grant{Token: a.token, Mode: lease.Efficiency, Slot: a.claim.slot, Sent: a.sent}
}

func (s *session) check(request *lease.Request) error {
	if err := request.Validate(); err != nil {
		return err
	}
	if request.Mode == lease.Correctness {
		return &lease.ModeError{Resource: request.Resources[0], Want: request.Mode, Have: lease.Efficiency}
	}
	if request.Kind != lease.Exclusive && !s.backend.config.Shared {
		return unsupported("shared leases and permits")
	}
	return nil
}

func (s *session) grantOf(e *entry) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.granted
}

// acquire tries until the outcome is certain, or nobody waits for it.
func (s *session) acquire(ctx context.Context, request *lease.Request, e *entry) (*attempt, error) {
	if request.Wait {
		return s.acquireInTurn(ctx, request, e)
	}
	for splits := 0; ; splits++ {
		a, err := s.try(ctx, request, e, "")
		if err == nil {
			return a, nil
		}
		if !errors.Is(err, errSplit) {
			return nil, err
		}
		if splits == trySplits {
			return nil, fmt.Errorf("%w: others try at the same time", lease.ErrHeld)
		}
		if err := s.pause(ctx, splitPause(splits)); err != nil {
			return nil, err
		}
	}
}

func splitPause(n int) time.Duration {
	return minSplitPause + rand.N(min(minSplitPause<<min(n, 5), maxSplitPause))
}

func (s *session) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lostAttempt is the error of a try that others stood in the way of, with the
// time after which they may be gone.
type lostAttempt struct {
	error
	freeAfter time.Duration
}

func (l *lostAttempt) Unwrap() error { return l.error }

// try makes attempts until one is decided in the present epoch. The error
// matches ErrHeld, errSplit, ErrUnavailable or the context's.
func (s *session) try(ctx context.Context, request *lease.Request, e *entry, waiter string) (*attempt, error) {
	c := newClaim(request)
	for epochs, slots := 0, 0; ; {
		looked := s.backend.epochs.looks.Load()
		epoch, err := s.backend.epochs.usable()
		if err != nil {
			return nil, err
		}
		a := newAttempt(s, request, s.name(request.Nonce), epoch, c)
		a.ask(waiter)
		err = a.await(ctx, min(2*s.backend.config.NodeTimeout, s.ttl/2))
		if err == nil {
			if waiter != "" && a.lost() {
				a.release(wakeNone) // at once: others may need these votes
				a.hear(ctx, s.backend.config.NodeTimeout)
			}
			if err = s.settle(request.Nonce, e, a); err == nil {
				a.stay()
				return a, nil
			}
		}
		if !a.over() {
			a.release(wakeNext) // others may have seen it hold, and sleep
		}
		var other slotTaken
		switch {
		case errors.As(err, &other) && slots == trySlots:
			return nil, errSplit
		case errors.As(err, &other):
			c.slot = other.free
			slots++
		case errors.Is(err, lease.ErrUnavailable):
			return nil, s.backend.epochs.explain(err)
		case !errors.Is(err, errOldEpoch):
			return nil, err
		case epochs == tryEpochs:
			return nil, s.backend.epochs.explain(fmt.Errorf("%w: the Redis nodes keep changing their epoch", lease.ErrUnavailable))
		default:
			epochs++
			s.backend.epochs.refresh(ctx, looked)
		}
	}
}

// name is what the nodes know the next try of a nonce by. No two tries share one,
// for the tombstone of the first would refuse the second. Nor do two processes
// that serve one session, one after the other: what one of them releases must not
// be what the other one holds.
func (s *session) name(nonce lease.Nonce) string {
	return s.id + ":" + strconv.FormatUint(uint64(nonce), 10) + "." + s.backend.process + "." + strconv.FormatUint(s.tries.Add(1), 10)
}

// settle makes a decided attempt a grant, if a majority voted for it, its time
// has not passed meanwhile, and nobody has released it.
func (s *session) settle(nonce lease.Nonce, e *entry, a *attempt) error {
	a.mu.Lock()
	outcome := a.outcome
	a.mu.Unlock()
	if outcome != quorum.Granted {
		return &lostAttempt{a.refusal(), a.freeAfter()}
	}
	if s.config.Clock.Now().Since(a.sent) >= s.ttl-s.drift() {
		return fmt.Errorf("%w: the votes took longer than the lease lasts", lease.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.released || s.closed {
		return attemptEnded(nonce)
	}
	e.granted = a
	if a.claim.kind == lease.Exclusive {
		s.backend.queues.held(a)
	}
	return nil
}

// Release ends the attempt, whatever its state.
func (s *session) Release(ctx context.Context, nonce lease.Nonce) error {
	a, again := s.end(nonce)
	var under *farewell
	switch {
	case a == nil:
		return nil // nothing of it is left, and nothing can be granted any more
	case again:
		under = a.release(wakeNext)
	default:
		under = s.backend.queues.release(a)
	}
	err := under.await(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.leaving, nonce)
	}
	return err
}

// end notes that a nonce was released, and returns its grant if it has one.
// again says that an earlier release of it was not confirmed.
func (s *session) end(nonce lease.Nonce) (a *attempt, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.backend.clock.Now(); s.ended[0] == nil || now.Since(s.rotated) > s.ttl {
		s.ended[0], s.ended[1], s.rotated = map[lease.Nonce]bool{}, s.ended[0], now
		for old := range s.leaving { // those have expired by themselves
			if !s.ended[1][old] {
				delete(s.leaving, old)
			}
		}
	}
	s.ended[0][nonce] = true
	e := s.known[nonce]
	if e == nil {
		return s.leaving[nonce], true
	}
	delete(s.known, nonce)
	e.released = true
	if e.gone != nil {
		close(e.gone)
	}
	if e.granted != nil {
		s.leaving[nonce] = e.granted
	}
	return e.granted, false
}

// Close ends the session and releases everything in it.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	var nonces []lease.Nonce
	for nonce := range s.known {
		nonces = append(nonces, nonce)
	}
	s.mu.Unlock()
	s.backend.forget(s)
	var under []*farewell
	for _, nonce := range nonces {
		if a, again := s.end(nonce); a != nil && !again {
			under = append(under, s.backend.queues.release(a))
		}
	}
	var failed []error
	for _, f := range under {
		if err := f.await(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
