package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/perlease"
)

// session is a lease.Session over both modes. The service knows it only by its
// strict part, which has an id of its own: when that is lost, the leases in
// efficiency mode are not.
type session struct {
	router *router
	config lease.SessionConfig
	fast   *perlease.Session // locks in efficiency mode
	work   sync.WaitGroup

	opening chan struct{} // held while a strict session is being opened

	mu     sync.Mutex
	closed bool
	strict *strict                 // nil until the first lock in correctness mode
	went   map[lease.Nonce]*strict // attempts that may be held in correctness mode
}

// strict is a session of the service, for locks in correctness mode.
type strict struct {
	lease.Session
	users int  // acquires under way
	used  bool // since the last renewal
}

// Open starts a session. Nothing is asked of the service before the first lock in
// correctness mode.
func (r *router) Open(ctx context.Context, config lease.SessionConfig) (lease.Session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if config.Clock == nil {
		config.Clock = lease.SystemClock()
	}
	s := &session{router: r, config: config, fast: perlease.NewSession(r.engine, config), opening: make(chan struct{}, 1),
		went: map[lease.Nonce]*strict{}}
	r.mu.Lock()
	r.sessions[s] = true
	r.mu.Unlock()
	return s, nil
}

// Acquire asks for a grant where the lock is. One that waits follows the lock from
// one mode to the other.
func (s *session) Acquire(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if request.Queued != nil {
		request.Queued = sync.OnceFunc(request.Queued)
	}
	for look := 0; ; look++ {
		topology, grant, err := s.acquireOnce(ctx, request)
		if err == nil || ctx.Err() != nil || !stale(&request, err) {
			return grant, err
		}
		var moving *lease.MovingError
		waits := request.Wait && errors.As(err, &moving)
		if waits && request.Queued != nil {
			request.Queued()
		}
		fresh := s.router.newer(ctx, topology.Version) == nil
		if waits && ctx.Err() == nil || fresh && (request.Wait || look == 0) {
			continue
		}
		var mode *lease.ModeError
		if errors.As(err, &mode) { // what is stale is no mismatch
			err = fmt.Errorf("%w: %s", lease.ErrUnavailable, err.Error())
		}
		return lease.Grant{}, err
	}
}

func (s *session) acquireOnce(ctx context.Context, request lease.Request) (topology lease.Topology, grant lease.Grant, err error) {
	topology, mode, err := s.router.decide(&request)
	switch {
	case err != nil:
	case mode == lease.Efficiency:
		grant, err = s.acquireFast(ctx, request)
	default:
		grant, err = s.acquireStrict(ctx, request)
	}
	return topology, grant, err
}

// acquireFast acquires in efficiency mode.
func (s *session) acquireFast(ctx context.Context, request lease.Request) (lease.Grant, error) {
	s.leaveStrict(request.Nonce)
	waiting := ctx
	if request.Wait {
		rerouted, done := s.router.await(ctx, &request)
		defer done()
		waiting = rerouted
	}
	grant, err := s.fast.Acquire(waiting, request)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(waiting), errRerouted) {
		return lease.Grant{}, errRerouted
	}
	return grant, err
}

// acquireStrict acquires in correctness mode. A session of the service that is lost
// is replaced: its leases were told, and this is not one of them.
func (s *session) acquireStrict(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if s.fast.Ended(request.Nonce) {
		return lease.Grant{}, fmt.Errorf("%w: attempt %d has ended", lease.ErrHeld, request.Nonce)
	}
	s.fast.Withdraw(request.Nonce)
	for again := true; ; again = false {
		sub, err := s.enter(ctx, request.Nonce)
		if err != nil {
			return lease.Grant{}, err
		}
		grant, err := sub.Acquire(ctx, request)
		lost := errors.Is(err, lease.ErrLost)
		s.leave(sub, request.Nonce, lost || err != nil && refusal(err))
		if !lost {
			return grant, err
		}
		s.drop(sub)
		if !again || ctx.Err() != nil {
			return lease.Grant{}, fmt.Errorf("%w: %s", lease.ErrUnavailable, err.Error())
		}
	}
}

// refusal reports whether err says that an attempt was not granted and will not be.
func refusal(err error) bool {
	for _, sentinel := range []error{lease.ErrHeld, lease.ErrModeMismatch, lease.ErrUnsupported, lease.ErrInvalid} {
		if errors.Is(err, sentinel) {
			return !errors.Is(err, lease.ErrUncertain)
		}
	}
	return false
}

// enter returns the strict session, opened if need be, with one more user.
func (s *session) enter(ctx context.Context, nonce lease.Nonce) (*strict, error) {
	if sub := s.join(nil, nonce); sub != nil {
		return sub, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if sub := s.join(nil, nonce); sub != nil {
		return sub, nil
	}
	opened, err := s.router.service.Open(ctx, lease.SessionConfig{ID: lease.NewSessionID(), TTL: s.config.TTL, Clock: s.config.Clock, Lost: s.lost})
	if err != nil {
		return nil, err
	}
	return s.join(&strict{Session: opened}, nonce), nil
}

// join makes an attempt a user of the strict session, which is the opened one
// unless that is nil. It returns nil if there is none.
func (s *session) join(opened *strict, nonce lease.Nonce) *strict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened != nil {
		s.strict = opened
	}
	if s.strict != nil {
		s.strict.users++
		s.strict.used = true
		s.went[nonce] = s.strict
	}
	return s.strict
}

// leave is the other end of enter. over says that the attempt has certainly ended.
func (s *session) leave(sub *strict, nonce lease.Nonce, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.users--
	if over && s.went[nonce] == sub {
		delete(s.went, nonce)
	}
}

// drop takes a strict session out of use.
func (s *session) drop(sub *strict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strict == sub {
		s.strict = nil
	}
	for nonce, at := range s.went {
		if at == sub {
			delete(s.went, nonce)
		}
	}
}

// lost is told by the service that it has ended a lease.
func (s *session) lost(nonce lease.Nonce, err error) {
	s.mu.Lock()
	delete(s.went, nonce)
	s.mu.Unlock()
	if s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}

// leaveStrict ends in the background what an attempt may have got in correctness
// mode: its lock is in efficiency mode now, and the move waits for its holders.
func (s *session) leaveStrict(nonce lease.Nonce) {
	s.mu.Lock()
	sub := s.went[nonce]
	delete(s.went, nonce)
	s.mu.Unlock()
	if sub == nil {
		return
	}
	s.background(func(ctx context.Context) { _ = sub.Release(ctx, nonce) }) // else it ends with the session
}

// background runs f for a limited time. Close waits for it.
func (s *session) background(f func(context.Context)) {
	limited := func() {
		ctx, cancel := context.WithTimeout(s.router.ctx, closeTime)
		defer cancel()
		f(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		limited()
		return
	}
	s.work.Go(limited)
	s.mu.Unlock()
}

// Release ends the attempt, wherever it went.
func (s *session) Release(ctx context.Context, nonce lease.Nonce) error {
	s.mu.Lock()
	sub := s.went[nonce]
	s.mu.Unlock()
	err := s.fast.Release(ctx, nonce) // also so that a late copy is refused
	if sub == nil {
		return err
	}
	strictErr := sub.Release(ctx, nonce)
	if errors.Is(strictErr, lease.ErrLost) {
		strictErr = nil
	}
	if strictErr == nil {
		s.mu.Lock()
		delete(s.went, nonce)
		s.mu.Unlock()
	}
	return errors.Join(err, strictErr)
}
