package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// session is a session of the correctness mode that this member knows. It is a
// engine.Session.
type session struct {
	router *router
	id     engine.SessionID
	ttl    time.Duration
	raft   *raftstore.Session
	forget func() // removes it from the registry
	// firstNonce returns the number that nonces starts from.
	firstNonce func(context.Context, engine.SessionID) (engine.Nonce, error)

	mu        sync.Mutex
	listeners map[*stream]bool
	used      engine.Instant // the last use
	nonces    engine.Nonce   // the last one that this member chose
}

var _ engine.Session = (*session)(nil)

// Acquire asks the Raft machine, which refuses locks in efficiency mode.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if err := request.Validate(); err != nil {
		return engine.Grant{}, err
	}
	return s.raft.Acquire(ctx, request)
}

// Renew extends the session, and all leases in it.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	failed, err := s.raft.Renew(ctx)
	switch {
	case err == nil:
		s.use()
	case errors.Is(err, engine.ErrLost):
		s.forget()
	}
	return failed, err
}

// use notes that the session is in use.
func (s *session) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = s.router.clock.Now()
}

// Release ends an attempt.
func (s *session) Release(ctx context.Context, nonce engine.Nonce) error {
	return s.raft.Release(ctx, nonce)
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	err := s.raft.Close(ctx)
	if err == nil {
		s.forget()
	}
	return err
}

// holds returns the leases of the session, as this member knows them.
func (s *session) holds(ctx context.Context) (map[engine.Nonce]fencing.Token, error) {
	requests, err := s.router.node.Session(ctx, s.id, raftstore.Stale)
	if errors.Is(err, engine.ErrNotHeld) {
		return nil, engine.ErrExpired
	}
	if err != nil {
		return nil, err
	}
	holds := map[engine.Nonce]fencing.Token{}
	for i := range requests {
		if p := &requests[i].Party; p.Token != fencing.None {
			holds[p.Nonce] = p.Token
		}
	}
	return holds, nil
}

// lost tells the streams of the client about a loss.
func (s *session) lost(nonce engine.Nonce, err error) {
	s.mu.Lock()
	listeners := make([]*stream, 0, len(s.listeners))
	for st := range s.listeners {
		listeners = append(listeners, st)
	}
	s.mu.Unlock()
	for _, st := range listeners {
		st.notifyLost(s.id, nonce, err)
	}
}

func (s *session) listen(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[st] = true
}

func (s *session) unlisten(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, st)
}

// nextNonce chooses a nonce for a caller that has none.
func (s *session) nextNonce(ctx context.Context) (engine.Nonce, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nonces == 0 {
		s.mu.Unlock() // the registry's lock comes first
		first, err := s.firstNonce(ctx, s.id)
		s.mu.Lock()
		if err != nil {
			return 0, err
		}
		s.nonces = max(s.nonces, first) // another caller may have been faster
	}
	s.nonces++
	return s.nonces, nil
}
