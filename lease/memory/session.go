package memory

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// session is an engine.Session. The Backend's mu guards its fields.
type session struct {
	memory      *Backend
	config      engine.SessionConfig
	incarnation uint64
	sent        engine.Instant // by the client's clock, before the last keep-alive was sent
	deadline    engine.Instant // by the service's clock
	timer       *time.Timer
	waiting     map[engine.Nonce]chan waitResult
	over        bool
}

type waitResult struct {
	grant engine.Grant
	err   error
}

// Acquire requests a grant, and waits for it if the request says so.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	granted, result, mode, err := s.apply(ctx, request)
	if err != nil {
		return engine.Grant{}, err
	}
	switch result.Code {
	case machine.Granted:
		return s.stamp(engine.Grant{Token: result.Token, Slot: result.Slot, Mode: mode}), nil
	case machine.Queued:
		if request.Queued != nil {
			request.Queued()
		}
		return s.await(ctx, request.Nonce, granted)
	case machine.Held:
		return engine.Grant{}, engine.ErrHeld
	case machine.Ended:
		return engine.Grant{}, fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, request.Nonce)
	case machine.NoSession:
		return engine.Grant{}, engine.ErrExpired
	case machine.OtherPermits:
		return engine.Grant{}, &engine.PermitsError{Resource: result.Resource, Want: request.Permits, Have: result.Permits}
	case machine.OtherRequest:
		return engine.Grant{}, fmt.Errorf("%w: attempt %d is for other locks or of another kind, not for %q (%s); use a new nonce",
			engine.ErrInvalid, request.Nonce, request.Resources, request.Kind)
	case machine.LowNonce:
		return engine.Grant{}, machine.LowNonceError(request.Nonce, result.Nonce)
	}
	return engine.Grant{}, fmt.Errorf("%w: %s", engine.ErrUnavailable, result.Code)
}

// apply applies the request. If it is queued, the channel delivers the outcome.
func (s *session) apply(ctx context.Context, request engine.Request) (chan waitResult, machine.Result, engine.Mode, error) {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	err := m.ready(ctx)
	if err == nil {
		err = m.checkModes(&request)
	}
	if err != nil {
		return nil, machine.Result{}, engine.AnyMode, err
	}
	mode := modeOf(m.policies, request.Resources[0])
	request.Mode = engine.Correctness
	result := m.applyLocked(&machine.Acquire{Session: s.config.ID, Incarnation: s.incarnation, Request: request})
	if result.Code != machine.Queued {
		return nil, result, mode, nil
	}
	granted := make(chan waitResult, 1)
	s.waiting[request.Nonce] = granted
	return granted, result, mode, nil
}

func (s *session) await(ctx context.Context, nonce engine.Nonce, granted chan waitResult) (engine.Grant, error) {
	select {
	case result := <-granted:
		return s.stamp(result.grant), result.err
	case <-ctx.Done():
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		if s.waiting[nonce] == granted { // otherwise another call waits for the same attempt
			delete(s.waiting, nonce)
		}
		return engine.Grant{}, ctx.Err()
	}
}

// stamp sets the start of the grant's TTL, which is that of its session.
func (s *session) stamp(g engine.Grant) engine.Grant {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	g.Sent = s.sent
	return g
}

// Renew extends the session by its TTL.
func (s *session) Renew(ctx context.Context, _ ...engine.Held) ([]engine.Nonce, error) {
	sent := s.config.Clock.Now()
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	if s.over {
		return nil, engine.ErrExpired
	}
	s.extend(sent)
	var extended []engine.Nonce
	holds, _ := m.machine.Holds(s.config.ID, s.incarnation).Next(math.MaxInt)
	for _, h := range holds {
		extended = append(extended, h.Nonce)
	}
	return extended, nil
}

// extend restarts the TTL of the session. The caller holds mu.
func (s *session) extend(sent engine.Instant) {
	s.sent = sent
	s.deadline = s.memory.clock.Now().Add(s.config.TTL)
	if s.timer == nil {
		s.timer = time.AfterFunc(s.config.TTL, s.expire)
	} else {
		s.timer.Reset(s.config.TTL)
	}
}

// expire ends the session if its deadline has passed.
func (s *session) expire() {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if m.clock.Now().Until(s.deadline) <= 0 {
		s.expireNow()
	}
}

// expireNow ends the session. The caller holds mu.
func (s *session) expireNow() {
	s.end(&machine.Expire{Session: s.config.ID, Incarnation: s.incarnation, Generation: s.memory.machine.Generation()})
}

// Release ends an attempt, whatever its state.
func (s *session) Release(ctx context.Context, held engine.Held) error {
	nonce := held.Nonce
	command := &machine.Release{Session: s.config.ID, Incarnation: s.incarnation, Nonce: nonce}
	if err := machine.Validate(command); err != nil {
		return err
	}
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.applyLocked(command)
	return nil
}

// Close ends the session and releases every grant in it.
func (s *session) Close(ctx context.Context, _ ...engine.Held) error {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return err
	}
	s.end(&machine.CloseSession{Session: s.config.ID, Incarnation: s.incarnation})
	return nil
}

// end applies a command that ends the session, and ends its requests. The caller holds mu.
func (s *session) end(c machine.Command) {
	s.memory.applyLocked(c)
	for s.memory.applyLocked(&machine.EndRequests{Max: machine.MaxEndRequests}).Code == machine.Ending {
	}
	s.over = true
	s.timer.Stop()
	delete(s.memory.sessions, s.config.ID)
}

// answer delivers the outcome to a waiting Acquire. The caller holds mu.
func (s *session) answer(nonce engine.Nonce, result waitResult) {
	if granted := s.waiting[nonce]; granted != nil {
		granted <- result
		delete(s.waiting, nonce)
	}
}

func (s *session) lost(nonce engine.Nonce, err error) {
	if s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}
