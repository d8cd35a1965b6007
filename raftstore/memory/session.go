package memory

import (
	"context"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// session is an engine.Session.
type session struct {
	memory      *Backend
	config      engine.SessionConfig
	incarnation uint64
	listener    *hub.Listener  // nil if nobody wants to know of losses
	sent        engine.Instant // by the client's clock, before the last keep-alive was sent; guarded by the Backend's mu
}

// waiter is a call that waits for a queued attempt.
type waiter struct {
	*hub.Wait
	attempt hub.Attempt
	done    chan struct{}
}

// Acquire requests a grant, and waits for it if the request says so.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	m := s.memory
	result, mode, w, err := s.apply(ctx, request)
	if w != nil {
		if request.Queued != nil {
			request.Queued()
		}
		select {
		case <-w.done:
			result, err = w.Result, w.Err
		case <-ctx.Done():
			m.hub.Leave(w.attempt, w.Wait)
			err = ctx.Err()
		}
	}
	if err == nil {
		err = result.Refusal(&request)
	}
	if err != nil {
		return engine.Grant{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return engine.Grant{Token: result.Token, Slot: result.Slot, Mode: mode, Sent: s.sent}, nil
}

// apply applies the request. The waiter is nil unless the request is queued.
func (s *session) apply(ctx context.Context, request engine.Request) (machine.Result, engine.Mode, *waiter, error) {
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return machine.Result{}, engine.AnyMode, nil, err
	}
	mode, err := m.checkModes(&request)
	if err != nil {
		return machine.Result{}, engine.AnyMode, nil, err
	}
	request.Mode = engine.Correctness
	result := m.apply(&machine.Acquire{Session: s.config.ID, Incarnation: s.incarnation, Request: request})
	if result.Code != machine.Queued {
		return result, mode, nil, nil
	}
	done := make(chan struct{})
	w := &waiter{Wait: hub.NewWait(func(*hub.Wait) { close(done) }), done: done,
		attempt: hub.Attempt{Session: s.config.ID, Incarnation: s.incarnation, Nonce: request.Nonce}}
	m.hub.Expect(w.attempt, w.Wait)
	return result, mode, w, nil
}

// Renew extends the session by its TTL.
func (s *session) Renew(ctx context.Context, _ ...engine.Held) (extended []engine.Nonce, err error) {
	if err := s.extend(ctx); err != nil {
		return nil, err
	}
	holds, open := machine.AllHolds(s.memory.read, s.config.ID, s.incarnation)
	if !open {
		return nil, engine.ErrExpired
	}
	for _, h := range holds {
		extended = append(extended, h.Nonce)
	}
	return extended, nil
}

func (s *session) extend(ctx context.Context) error {
	sent := s.config.Clock.Now()
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return err
	}
	if !m.lessor.Renew(m.clock.Now(), s.config.ID, s.incarnation, s.config.TTL) {
		return engine.ErrExpired
	}
	s.sent = sent
	return nil
}

// Update renews the session for the TTL of a lease, and sets the metadata of the lease.
func (s *session) Update(ctx context.Context, held engine.Held) error {
	command := &machine.Update{Session: s.config.ID, Incarnation: s.incarnation, TTL: held.TTL, Nonce: held.Nonce,
		Metadata: held.Metadata}
	if err := machine.Validate(command); err != nil {
		return err
	}
	m := s.memory
	m.mu.Lock()
	defer m.unlock()
	if err := m.ready(ctx); err != nil {
		return err
	}
	if m.apply(command).Code == machine.NotHeld {
		return engine.ErrNotHeld
	}
	if !m.lessor.Renew(m.clock.Now(), s.config.ID, s.incarnation, held.TTL) {
		return engine.ErrExpired
	}
	return nil
}

// Release ends an attempt, whatever its state.
func (s *session) Release(ctx context.Context, held engine.Held) error {
	_, err := s.memory.call(ctx, &machine.Release{Session: s.config.ID, Incarnation: s.incarnation, Nonce: held.Nonce})
	return err
}

// Close ends the session and releases every grant in it.
func (s *session) Close(ctx context.Context, _ ...engine.Held) error {
	if _, err := s.memory.call(ctx, &machine.CloseSession{Session: s.config.ID, Incarnation: s.incarnation}); err != nil {
		return err
	}
	s.memory.endRequests()
	if s.listener != nil {
		s.memory.hub.Unlisten(s.config.ID, s.listener)
	}
	return nil
}
