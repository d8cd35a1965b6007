package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// session is a engine.Session of Memory. Its fields are guarded by the
// Memory's mu.
type session struct {
	memory      *Backend
	config      engine.SessionConfig
	incarnation uint64
	sent        engine.Instant // on the client's clock: before the last keep-alive was sent
	deadline    engine.Instant // on the service's clock
	timer       *time.Timer
	waiting     map[engine.Nonce]chan waitResult
	over        bool
}

type waitResult struct {
	grant engine.Grant
	err   error
}

// Acquire asks for a grant, and waits for it if the request says so.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if err := request.Validate(); err != nil {
		return engine.Grant{}, err
	}
	turn, result, mode, err := s.ask(ctx, request)
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
		return s.await(ctx, request.Nonce, turn)
	case machine.Held:
		return engine.Grant{}, engine.ErrHeld
	case machine.Ended:
		return engine.Grant{}, fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, request.Nonce)
	case machine.NoSession:
		return engine.Grant{}, engine.ErrExpired
	}
	return engine.Grant{}, fmt.Errorf("%w: %s", engine.ErrUnavailable, result.Code)
}

// ask applies the request. If it is queued its turn comes on the channel.
func (s *session) ask(ctx context.Context, request engine.Request) (chan waitResult, machine.Result, engine.Mode, error) {
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
	turn := make(chan waitResult, 1)
	s.waiting[request.Nonce] = turn
	return turn, result, mode, nil
}

func (s *session) await(ctx context.Context, nonce engine.Nonce, turn chan waitResult) (engine.Grant, error) {
	select {
	case result := <-turn:
		return s.stamp(result.grant), result.err
	case <-ctx.Done():
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		if s.waiting[nonce] == turn { // else it was asked again meanwhile
			delete(s.waiting, nonce)
		}
		return engine.Grant{}, ctx.Err()
	}
}

// stamp says since when the grant is valid: as long as its session.
func (s *session) stamp(g engine.Grant) engine.Grant {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	g.Sent = s.sent
	return g
}

// Renew gives the session its full time again.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
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
	s.prolong(sent)
	return nil, nil
}

// prolong restarts the clock of the session. The caller holds mu.
func (s *session) prolong(sent engine.Instant) {
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

// expireNow ends the session without asking the clock. The caller holds mu.
func (s *session) expireNow() {
	s.memory.applyLocked(&machine.Expire{Session: s.config.ID, Incarnation: s.incarnation, Generation: s.memory.machine.Generation()})
	s.end()
}

// Release ends an attempt, whatever its state.
func (s *session) Release(ctx context.Context, nonce engine.Nonce) error {
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
	s.answer(nonce, waitResult{err: fmt.Errorf("%w: attempt %d was released", engine.ErrHeld, nonce)})
	m.applyLocked(command)
	return nil
}

// Close ends the session and releases everything in it.
func (s *session) Close(ctx context.Context) error {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.applyLocked(&machine.CloseSession{Session: s.config.ID, Incarnation: s.incarnation})
	s.end()
	return nil
}

// end takes the session out of the books. The caller holds mu.
func (s *session) end() {
	s.over = true
	s.timer.Stop()
	delete(s.memory.sessions, s.config.ID)
}

// answer tells a waiter the outcome. The caller holds mu.
func (s *session) answer(nonce engine.Nonce, result waitResult) {
	if turn := s.waiting[nonce]; turn != nil {
		turn <- result
		delete(s.waiting, nonce)
	}
}

func (s *session) lost(nonce engine.Nonce, err error) {
	if s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}
