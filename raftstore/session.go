package raftstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// Session is an engine.Session of a Backend. One keep-alive renews the session and its
// leases. It is one incarnation of a session: when that incarnation has ended, every call
// fails, even if another one was opened under the same id.
type Session struct {
	backend  *Backend
	config   engine.SessionConfig // with the TTL of the session
	listener *hub.Listener
	number   uint64 // the incarnation

	mu   sync.Mutex
	sent engine.Instant // before the last answered keep-alive was sent
}

var _ engine.Session = (*Session)(nil)

// ID returns the id of the session.
func (s *Session) ID() engine.SessionID { return s.config.ID }

// Incarnation returns the number that distinguishes this session from all others with its
// id.
func (s *Session) Incarnation() uint64 { return s.number }

// TTL returns the TTL of the session.
func (s *Session) TTL() time.Duration { return s.config.TTL }

// Acquire requests a grant.
func (s *Session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	n, err := s.backend.leader()
	if err != nil {
		return engine.Grant{}, err
	}
	r, queued, notify := make(reply, 1), make(chan struct{}, 1), request.Queued
	if notify != nil {
		request.Queued = func() { queued <- struct{}{} }
	}
	if err := s.begin(ctx, n, request, r); err != nil {
		return engine.Grant{}, err
	}
	n.committer.wakeUp()
	result, err := n.committer.wait(ctx, r, queued, notify)
	if err != nil {
		return engine.Grant{}, err
	}
	return engine.Grant{Token: result.Token, Slot: result.Slot, Mode: result.Mode, Sent: s.since()}, nil
}

// refuseEfficiency returns the error for a caller that expects efficiency mode.
func (n *Node) refuseEfficiency(request engine.Request) error {
	topology := n.Topology()
	for _, name := range request.Resources {
		switch mode, err := topology.ModeOf(name); {
		case err != nil:
			return err
		case mode != engine.Efficiency:
			return &engine.ModeError{Resource: name, Want: engine.Efficiency, Have: mode}
		}
	}
	return fmt.Errorf("%w: %q is in efficiency mode; use the Redis backend", engine.ErrUnsupported, request.Resources)
}

// since returns the start of the session's current TTL.
func (s *Session) since() engine.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// Renew extends the session by its TTL, and returns its grants as this node has applied
// them. An Update for longer does not change that TTL, so a holder that dies after the longer
// time is noticed as soon as before.
func (s *Session) Renew(ctx context.Context, _ ...engine.Held) (extended []engine.Nonce, err error) {
	n, err := s.extend(ctx)
	if err != nil {
		return nil, err
	}
	holds, err := s.holds(n)
	if err != nil {
		return nil, err
	}
	for _, h := range holds {
		extended = append(extended, h.Nonce)
	}
	return extended, nil
}

// Holds returns the grants of the session, as the leader has applied them.
func (s *Session) Holds() ([]machine.Hold, error) {
	n, err := s.backend.leader()
	if err != nil {
		return nil, err
	}
	return s.holds(n)
}

func (s *Session) holds(n *Node) ([]machine.Hold, error) {
	all, open := machine.AllHolds(n.fsm.Read, s.config.ID, s.number)
	if !open {
		return nil, engine.ErrExpired
	}
	return all, nil
}

// HoldsAny reports whether the session has a grant. The time that it takes does not depend on their number.
func (s *Session) HoldsAny() (holds bool, err error) {
	n, err := s.backend.leader()
	if err != nil {
		return false, err
	}
	err = engine.ErrExpired
	n.fsm.Read(func(m *machine.Machine) {
		if all := m.Holds(s.config.ID, s.number); all != nil {
			first, _ := all.Next(1)
			holds, err = len(first) > 0, nil
		}
	})
	return holds, err
}

// Attempt returns the state of an attempt, as the leader has applied it.
func (s *Session) Attempt(nonce engine.Nonce) (result machine.Result, err error) {
	n, err := s.backend.leader()
	if err != nil {
		return machine.Result{}, err
	}
	n.fsm.Read(func(m *machine.Machine) { result = m.Attempt(s.config.ID, s.number, nonce) })
	if result.Code == machine.NoSession {
		err = engine.ErrExpired
	}
	return result, err
}

// Extend extends the session by its TTL. The time that it takes does not depend on the number
// of leases.
func (s *Session) Extend(ctx context.Context) error {
	_, err := s.extend(ctx)
	return err
}

func (s *Session) extend(ctx context.Context) (*Node, error) {
	sent := s.config.Clock.Now()
	n, err := s.backend.leader()
	if err == nil {
		err = n.renew(ctx, s.config.ID, s.number, s.config.TTL)
	}
	if err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Since(s.sent) > 0 {
		s.sent = sent
	}
	return n, nil
}

// Update renews the session for the TTL of a lease, and sets the metadata of the lease.
func (s *Session) Update(ctx context.Context, held engine.Held) error {
	n, err := s.backend.leader()
	if err == nil {
		err = n.update(ctx, &machine.Update{Session: s.config.ID, Incarnation: s.number, TTL: held.TTL, Nonce: held.Nonce,
			Metadata: held.Metadata})
	}
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	return nil
}

// Release ends an attempt. A lost session counts as released.
func (s *Session) Release(ctx context.Context, held engine.Held) error {
	n, err := s.backend.leader()
	if err == nil {
		_, _, err = n.propose(ctx, &machine.Release{Session: s.config.ID, Incarnation: s.number, Nonce: held.Nonce})
	}
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// Close ends the session. It returns when all leases of the session have ended, which takes
// several log entries if they are many. They end even if Close does not wait for it.
func (s *Session) Close(ctx context.Context, _ ...engine.Held) error {
	n, err := s.backend.leader()
	if err == nil {
		_, _, err = n.propose(ctx, &machine.CloseSession{Session: s.config.ID, Incarnation: s.number})
	}
	for err == nil && n.ending(s.number) {
		err = n.barrier(ctx)
	}
	if err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	s.Detach()
	return nil
}

// ending reports whether a session has ended and still has requests.
func (n *Node) ending(incarnation uint64) (ending bool) {
	n.fsm.Read(func(m *machine.Machine) { ending = m.Ending(incarnation) })
	return ending
}

// Detach ends the reports of lost leases. The session stays open.
func (s *Session) Detach() {
	for _, n := range s.backend.nodes {
		n.hub.Unlisten(s.config.ID, s.listener)
	}
}
