package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
)

// session is a session of the correctness mode that this member knows. It is a
// lease.Session.
type session struct {
	router *router
	id     lease.SessionID
	ttl    time.Duration
	raft   *raftstore.Session
	forget func() // removes it from the registry
	// firstNonce returns the number that nonces starts from.
	firstNonce func(context.Context, lease.SessionID) (lease.Nonce, error)

	mu        sync.Mutex
	listeners map[*stream]bool
	used      lease.Instant // the last use
	nonces    lease.Nonce   // the last one that this member chose
}

var _ lease.Session = (*session)(nil)

// Acquire asks the Raft machine, which refuses locks in efficiency mode.
func (s *session) Acquire(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if err := request.Validate(); err != nil {
		return lease.Grant{}, err
	}
	return s.raft.Acquire(ctx, request)
}

// Renew extends the session, and all leases in it.
func (s *session) Renew(ctx context.Context) ([]lease.Nonce, error) {
	failed, err := s.raft.Renew(ctx)
	switch {
	case err == nil:
		s.use()
	case errors.Is(err, lease.ErrLost):
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
func (s *session) Release(ctx context.Context, nonce lease.Nonce) error {
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
func (s *session) holds(ctx context.Context) (map[lease.Nonce]fencing.Token, error) {
	requests, err := s.router.node.Session(ctx, s.id, raftstore.Stale)
	if errors.Is(err, lease.ErrNotHeld) {
		return nil, lease.ErrExpired
	}
	if err != nil {
		return nil, err
	}
	holds := map[lease.Nonce]fencing.Token{}
	for i := range requests {
		if p := &requests[i].Party; p.Token != fencing.None {
			holds[p.Nonce] = p.Token
		}
	}
	return holds, nil
}

// lost tells the streams of the client about a loss.
func (s *session) lost(nonce lease.Nonce, err error) {
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
func (s *session) nextNonce(ctx context.Context) (lease.Nonce, error) {
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
