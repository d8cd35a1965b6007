package leasetest

import (
	"context"
	"fmt"
	"time"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// memorySession is a lease.Session of Memory. Its fields are guarded by the
// Memory's mu.
type memorySession struct {
	memory      *Memory
	config      lease.SessionConfig
	incarnation uint64
	sent        lease.Instant // on the client's clock: before the last keep-alive was sent
	deadline    lease.Instant // on the service's clock
	timer       *time.Timer
	waiting     map[lease.Nonce]chan waitResult
	over        bool
}

type waitResult struct {
	grant lease.Grant
	err   error
}

// Acquire asks for a grant, and waits for it if the request says so.
func (s *memorySession) Acquire(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if err := request.Validate(); err != nil {
		return lease.Grant{}, err
	}
	turn, result, mode, err := s.ask(ctx, request)
	if err != nil {
		return lease.Grant{}, err
	}
	switch result.Code {
	case machine.Granted:
		return s.stamp(lease.Grant{Token: result.Token, Slot: result.Slot, Mode: mode}), nil
	case machine.Queued:
		if request.Queued != nil {
			request.Queued()
		}
		return s.await(ctx, request.Nonce, turn)
	case machine.Held:
		return lease.Grant{}, lease.ErrHeld
	case machine.Ended:
		return lease.Grant{}, fmt.Errorf("%w: attempt %d has ended", lease.ErrHeld, request.Nonce)
	case machine.NoSession:
		return lease.Grant{}, lease.ErrExpired
	}
	return lease.Grant{}, fmt.Errorf("%w: %s", lease.ErrUnavailable, result.Code)
}

// ask applies the request. If it is queued its turn comes on the channel.
func (s *memorySession) ask(ctx context.Context, request lease.Request) (chan waitResult, machine.Result, lease.Mode, error) {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	err := m.ready(ctx)
	if err == nil {
		err = m.checkModes(&request)
	}
	if err != nil {
		return nil, machine.Result{}, lease.AnyMode, err
	}
	mode := modeOf(m.policies, request.Resources[0])
	request.Mode = lease.Correctness
	result := m.applyLocked(&machine.Acquire{Session: s.config.ID, Incarnation: s.incarnation, Request: request})
	if result.Code != machine.Queued {
		return nil, result, mode, nil
	}
	turn := make(chan waitResult, 1)
	s.waiting[request.Nonce] = turn
	return turn, result, mode, nil
}

func (s *memorySession) await(ctx context.Context, nonce lease.Nonce, turn chan waitResult) (lease.Grant, error) {
	select {
	case result := <-turn:
		return s.stamp(result.grant), result.err
	case <-ctx.Done():
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		if s.waiting[nonce] == turn { // else it was asked again meanwhile
			delete(s.waiting, nonce)
		}
		return lease.Grant{}, ctx.Err()
	}
}

// stamp says since when the grant is valid: as long as its session.
func (s *memorySession) stamp(g lease.Grant) lease.Grant {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	g.Sent = s.sent
	return g
}

// Renew gives the session its full time again.
func (s *memorySession) Renew(ctx context.Context) ([]lease.Nonce, error) {
	sent := s.config.Clock.Now()
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	if s.over {
		return nil, lease.ErrExpired
	}
	s.prolong(sent)
	return nil, nil
}

// prolong restarts the clock of the session. The caller holds mu.
func (s *memorySession) prolong(sent lease.Instant) {
	s.sent = sent
	s.deadline = s.memory.clock.Now().Add(s.config.TTL)
	if s.timer == nil {
		s.timer = time.AfterFunc(s.config.TTL, s.expire)
	} else {
		s.timer.Reset(s.config.TTL)
	}
}

// expire ends the session if its deadline has passed.
func (s *memorySession) expire() {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if m.clock.Now().Until(s.deadline) <= 0 {
		s.expireNow()
	}
}

// expireNow ends the session without asking the clock. The caller holds mu.
func (s *memorySession) expireNow() {
	s.memory.applyLocked(&machine.Expire{Session: s.config.ID, Incarnation: s.incarnation, Generation: s.memory.machine.Generation()})
	s.end()
}

// Release ends an attempt, whatever its state.
func (s *memorySession) Release(ctx context.Context, nonce lease.Nonce) error {
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
	s.answer(nonce, waitResult{err: fmt.Errorf("%w: attempt %d was released", lease.ErrHeld, nonce)})
	m.applyLocked(command)
	return nil
}

// Close ends the session and releases everything in it.
func (s *memorySession) Close(ctx context.Context) error {
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
func (s *memorySession) end() {
	s.over = true
	s.timer.Stop()
	delete(s.memory.sessions, s.config.ID)
}

// answer tells a waiter the outcome. The caller holds mu.
func (s *memorySession) answer(nonce lease.Nonce, result waitResult) {
	if turn := s.waiting[nonce]; turn != nil {
		turn <- result
		delete(s.waiting, nonce)
	}
}

func (s *memorySession) lost(nonce lease.Nonce, err error) {
	if s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}
