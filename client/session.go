package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/perlease"
)

// session is an engine.Session over both modes. Its session at the service has another
// id, so that leases in efficiency mode survive the loss of that session.
type session struct {
	router     *router
	config     engine.SessionConfig
	efficiency *perlease.Session

	opening chan struct{} // a mutex: held while a session of the service is being opened

	mu          sync.Mutex
	correctness *serviceSession                 // nil until the first lock in correctness mode
	attempts    map[engine.Nonce]serviceAttempt // attempts that may be held in correctness mode
}

// serviceSession is a session of the service, for locks in correctness mode. It numbers
// its attempts itself: an attempt that ended because its lock left correctness mode
// gets a new nonce if the lock returns. The session's mu guards all fields.
type serviceSession struct {
	engine.Session
	users     int  // acquires under way
	used      bool // since the last renewal
	lastNonce engine.Nonce
	outer     map[engine.Nonce]engine.Nonce // nonces of the session by nonces of the service
}

// serviceAttempt identifies an attempt at the service.
type serviceAttempt struct {
	session *serviceSession
	nonce   engine.Nonce
}

// Open returns a session. It calls the service with the first lock in correctness mode.
func (r *router) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := &session{router: r, config: config, efficiency: perlease.NewSession(r.redis, config),
		opening: make(chan struct{}, 1), attempts: map[engine.Nonce]serviceAttempt{}}
	r.mu.Lock()
	r.sessions[s] = true
	r.mu.Unlock()
	return s, nil
}

// Acquire requests a grant in the mode of the lock. If the topology turns out to be
// stale it waits a moment for a newer one and returns engine.ErrUnavailable: the next
// try follows the lock to its new mode.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	topology := s.router.service.Topology()
	mode, err := topology.Route(&request)
	var grant engine.Grant
	switch {
	case err != nil:
	case mode == engine.Efficiency:
		grant, err = s.acquireEfficiency(ctx, request)
	default:
		grant, err = s.acquireCorrectness(ctx, request)
	}
	if err == nil || ctx.Err() != nil || !stale(&request, err) {
		return grant, err
	}
	s.router.awaitTopology(ctx, topology.Version)
	var mismatch *engine.ModeError
	if errors.As(err, &mismatch) { // the caller's mode may be right by the newer topology
		err = fmt.Errorf("%w: %s", engine.ErrUnavailable, err.Error())
	}
	return engine.Grant{}, err
}

// acquireEfficiency requests a grant from the Redis nodes.
func (s *session) acquireEfficiency(ctx context.Context, request engine.Request) (engine.Grant, error) {
	s.leaveCorrectness(request.Nonce)
	bounded := ctx
	if request.Wait {
		waiting := request // on the heap only in this case
		rerouted, done := s.router.addWaiting(ctx, &waiting)
		defer done()
		bounded = rerouted
	}
	grant, err := s.efficiency.Acquire(bounded, request)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), errRerouted) {
		return engine.Grant{}, errRerouted
	}
	return grant, err
}

// acquireCorrectness requests a grant from the service. A lost session of the service
// is not the loss of this session: its leases were reported, and the next try opens
// another one.
func (s *session) acquireCorrectness(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if err := s.efficiency.Withdraw(request.Nonce); err != nil {
		return engine.Grant{}, err
	}
	at, err := s.enter(ctx, request.Nonce)
	if err != nil {
		return engine.Grant{}, err
	}
	request.Nonce = at.nonce
	grant, err := at.session.Acquire(ctx, request)
	lost := errors.Is(err, engine.ErrLost)
	s.leave(at, lost || engine.Refused(err))
	if lost {
		s.drop(at.session)
		return engine.Grant{}, fmt.Errorf("%w: %s", engine.ErrUnavailable, err.Error())
	}
	return grant, err
}

// enter returns the attempt at the service, and opens a session there if there is none.
// The caller calls leave.
func (s *session) enter(ctx context.Context, nonce engine.Nonce) (serviceAttempt, error) {
	if at, ok := s.join(nil, nonce); ok {
		return at, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return serviceAttempt{}, context.Cause(ctx)
	}
	if at, ok := s.join(nil, nonce); ok {
		return at, nil
	}
	opened := &serviceSession{outer: map[engine.Nonce]engine.Nonce{}}
	var err error
	opened.Session, err = s.router.service.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(),
		TTL: s.config.TTL, Clock: s.config.Clock,
		Lost: func(nonce engine.Nonce, err error) { s.lost(serviceAttempt{opened, nonce}, err) }})
	if err != nil {
		return serviceAttempt{}, err
	}
	at, _ := s.join(opened, nonce)
	return at, nil
}

// join adds an attempt to the session of the service, which is the opened one unless
// that is nil. An attempt whose outcome is open keeps its nonce at the service.
func (s *session) join(opened *serviceSession, nonce engine.Nonce) (serviceAttempt, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened != nil {
		s.correctness = opened
	}
	if s.correctness == nil {
		return serviceAttempt{}, false
	}
	at, known := s.attempts[nonce]
	if !known || at.session != s.correctness {
		s.correctness.lastNonce++
		at = serviceAttempt{s.correctness, s.correctness.lastNonce}
		s.attempts[nonce] = at
		at.session.outer[at.nonce] = nonce
	}
	at.session.users++
	at.session.used = true
	return at, true
}

// leave undoes enter. If the attempt has certainly ended it is deleted.
func (s *session) leave(at serviceAttempt, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.session.users--
	if ended {
		s.delete(at)
	}
}

// delete deletes an attempt, and returns its nonce in the session, 0 if it was
// deleted before. The caller holds mu.
func (s *session) delete(at serviceAttempt) engine.Nonce {
	nonce := at.session.outer[at.nonce]
	delete(at.session.outer, at.nonce)
	if s.attempts[nonce] != at {
		return 0
	}
	delete(s.attempts, nonce)
	return nonce
}

// drop stops using a session of the service.
func (s *session) drop(part *serviceSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.correctness == part {
		s.correctness = nil
	}
	for _, at := range s.attempts {
		if at.session == part {
			s.delete(at)
		}
	}
}

// lost is the callback for losses that the service reports.
func (s *session) lost(at serviceAttempt, err error) {
	s.mu.Lock()
	nonce := s.delete(at)
	s.mu.Unlock()
	if nonce != 0 && s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}

// leaveCorrectness releases in the background what an attempt may hold in correctness
// mode: its lock is in efficiency mode now, and the migration waits for its holders.
func (s *session) leaveCorrectness(nonce engine.Nonce) {
	s.mu.Lock()
	at, known := s.attempts[nonce]
	if known {
		s.delete(at)
	}
	s.mu.Unlock()
	if known {
		s.efficiency.Background(closeTimeout, func(ctx context.Context) {
			_ = at.session.Release(ctx, at.nonce) // otherwise it ends with the session
		})
	}
}

// Release ends the attempt in both modes.
func (s *session) Release(ctx context.Context, nonce engine.Nonce) error {
	s.mu.Lock()
	at, known := s.attempts[nonce]
	s.mu.Unlock()
	err := s.efficiency.Release(ctx, nonce) // also refuses a late copy of the acquire
	if !known {
		return err
	}
	serviceErr := at.session.Release(ctx, at.nonce)
	if errors.Is(serviceErr, engine.ErrLost) {
		serviceErr = nil
	}
	if serviceErr == nil {
		s.mu.Lock()
		s.delete(at)
		s.mu.Unlock()
	}
	return errors.Join(err, serviceErr)
}
