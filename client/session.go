package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/perlease"
)

// session is a engine.Session over both modes. The service knows it only by its
// strict part, which has an id of its own: when that is lost, the leases in
// efficiency mode are not.
type session struct {
	router *router
	config engine.SessionConfig
	fast   *perlease.Session // locks in efficiency mode
	work   sync.WaitGroup

	opening chan struct{} // held while a strict session is being opened

	mu     sync.Mutex
	closed bool
	strict *strict                // nil until the first lock in correctness mode
	went   map[engine.Nonce]place // attempts that may be held in correctness mode
}

// strict is a session of the service, for locks in correctness mode. It numbers its
// attempts itself: one that was ended here when its lock moved away is asked for
// under a new nonce if the lock comes back. All fields are guarded by the session's
// mu.
type strict struct {
	engine.Session
	users int  // acquires under way
	used  bool // since the last renewal
	last  engine.Nonce
	outer map[engine.Nonce]engine.Nonce // nonces of the session by those of the service
}

// place is where an attempt is known to the service.
type place struct {
	strict *strict
	nonce  engine.Nonce
}

// Open starts a session. Nothing is asked of the service before the first lock in
// correctness mode.
func (r *router) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	s := &session{router: r, config: config, fast: perlease.NewSession(r.redis, config), opening: make(chan struct{}, 1),
		went: map[engine.Nonce]place{}}
	r.mu.Lock()
	r.sessions[s] = true
	r.mu.Unlock()
	return s, nil
}

// Acquire asks for a grant where the lock is. One that waits follows the lock from
// one mode to the other.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if request.Queued != nil {
		request.Queued = sync.OnceFunc(request.Queued)
	}
	for look := 0; ; look++ {
		topology, grant, err := s.acquireOnce(ctx, request)
		if err == nil || ctx.Err() != nil || !stale(&request, err) {
			return grant, err
		}
		var moving *engine.MigratingError
		waits := request.Wait && errors.As(err, &moving)
		if waits && request.Queued != nil {
			request.Queued()
		}
		fresh := s.router.newer(ctx, topology.Version) == nil
		if waits && ctx.Err() == nil || fresh && (request.Wait || look == 0) {
			continue
		}
		var mode *engine.ModeError
		if errors.As(err, &mode) { // what is stale is no mismatch
			err = fmt.Errorf("%w: %s", engine.ErrUnavailable, err.Error())
		}
		return engine.Grant{}, err
	}
}

func (s *session) acquireOnce(ctx context.Context, request engine.Request) (topology engine.Topology, grant engine.Grant, err error) {
	topology, mode, err := s.router.decide(&request)
	switch {
	case err != nil:
	case mode == engine.Efficiency:
		grant, err = s.acquireFast(ctx, request)
	default:
		grant, err = s.acquireStrict(ctx, request)
	}
	return topology, grant, err
}

// acquireFast acquires in efficiency mode.
func (s *session) acquireFast(ctx context.Context, request engine.Request) (engine.Grant, error) {
	s.leaveStrict(request.Nonce)
	waiting := ctx
	if request.Wait {
		rerouted, done := s.router.await(ctx, &request)
		defer done()
		waiting = rerouted
	}
	grant, err := s.fast.Acquire(waiting, request)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(waiting), errRerouted) {
		return engine.Grant{}, errRerouted
	}
	return grant, err
}

// acquireStrict acquires in correctness mode. A session of the service that is lost
// is replaced: its leases were told, and this is not one of them.
func (s *session) acquireStrict(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if s.fast.Ended(request.Nonce) {
		return engine.Grant{}, fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, request.Nonce)
	}
	s.fast.Withdraw(request.Nonce)
	for again := true; ; again = false {
		at, err := s.enter(ctx, request.Nonce)
		if err != nil {
			return engine.Grant{}, err
		}
		inner := request
		inner.Nonce = at.nonce
		grant, err := at.strict.Acquire(ctx, inner)
		lost := errors.Is(err, engine.ErrLost)
		s.leave(at, lost || err != nil && refusal(err))
		if !lost {
			return grant, err
		}
		s.drop(at.strict)
		if !again || ctx.Err() != nil {
			return engine.Grant{}, fmt.Errorf("%w: %s", engine.ErrUnavailable, err.Error())
		}
	}
}

// refusal reports whether err says that an attempt was not granted and will not be.
func refusal(err error) bool {
	for _, sentinel := range []error{engine.ErrHeld, engine.ErrModeMismatch, engine.ErrUnsupported, engine.ErrInvalid} {
		if errors.Is(err, sentinel) {
			return !errors.Is(err, engine.ErrUncertain)
		}
	}
	return false
}

// enter returns where an attempt goes in the strict session, which is opened if need
// be and has one more user.
func (s *session) enter(ctx context.Context, nonce engine.Nonce) (place, error) {
	if at, ok := s.join(nil, nonce); ok {
		return at, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return place{}, context.Cause(ctx)
	}
	if at, ok := s.join(nil, nonce); ok {
		return at, nil
	}
	opened := &strict{outer: map[engine.Nonce]engine.Nonce{}}
	var err error
	opened.Session, err = s.router.service.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: s.config.TTL, Clock: s.config.Clock,
		Lost: func(nonce engine.Nonce, err error) { s.lost(place{opened, nonce}, err) }})
	if err != nil {
		return place{}, err
	}
	at, _ := s.join(opened, nonce)
	return at, nil
}

// join makes an attempt a user of the strict session, which is the opened one
// unless that is nil. An attempt whose outcome is open keeps its place.
func (s *session) join(opened *strict, nonce engine.Nonce) (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened != nil {
		s.strict = opened
	}
	if s.strict == nil {
		return place{}, false
	}
	at, known := s.went[nonce]
	if !known || at.strict != s.strict {
		s.strict.last++
		at = place{s.strict, s.strict.last}
		s.went[nonce] = at
		at.strict.outer[at.nonce] = nonce
	}
	at.strict.users++
	at.strict.used = true
	return at, true
}

// leave is the other end of enter. over says that the attempt has certainly ended.
func (s *session) leave(at place, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.strict.users--
	if over {
		s.forget(at)
	}
}

// forget removes an attempt of the service, and returns its nonce in the session, 0
// if it is not known any more. The caller holds mu.
func (s *session) forget(at place) engine.Nonce {
	nonce := at.strict.outer[at.nonce]
	delete(at.strict.outer, at.nonce)
	if s.went[nonce] != at {
		return 0
	}
	delete(s.went, nonce)
	return nonce
}

// drop takes a strict session out of use.
func (s *session) drop(sub *strict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strict == sub {
		s.strict = nil
	}
	for _, at := range s.went {
		if at.strict == sub {
			s.forget(at)
		}
	}
}

// lost is told by the service that it has ended a lease.
func (s *session) lost(at place, err error) {
	s.mu.Lock()
	nonce := s.forget(at)
	s.mu.Unlock()
	if nonce != 0 && s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}

// leaveStrict ends in the background what an attempt may have got in correctness
// mode: its lock is in efficiency mode now, and the move waits for its holders.
func (s *session) leaveStrict(nonce engine.Nonce) {
	s.mu.Lock()
	at, known := s.went[nonce]
	if known {
		s.forget(at)
	}
	s.mu.Unlock()
	if known {
		s.background(func(ctx context.Context) { _ = at.strict.Release(ctx, at.nonce) }) // else it ends with the session
	}
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
func (s *session) Release(ctx context.Context, nonce engine.Nonce) error {
	s.mu.Lock()
	at, known := s.went[nonce]
	s.mu.Unlock()
	err := s.fast.Release(ctx, nonce) // also so that a late copy is refused
	if !known {
		return err
	}
	strictErr := at.strict.Release(ctx, at.nonce)
	if errors.Is(strictErr, engine.ErrLost) {
		strictErr = nil
	}
	if strictErr == nil {
		s.mu.Lock()
		s.forget(at)
		s.mu.Unlock()
	}
	return errors.Join(err, strictErr)
}
