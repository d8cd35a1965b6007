package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// session is a cached session of the correctness mode.
type session struct {
	cache *sessions
	id    engine.SessionID
	ttl   time.Duration
	raft  *raftstore.Session

	mu        sync.Mutex
	listeners map[*stream]bool
	usedAt    engine.Instant // the last use
	lastNonce engine.Nonce   // the last one that this member chose
}

// renew extends the session, and all leases in it.
func (s *session) renew(ctx context.Context) ([]engine.Nonce, error) {
	failed, err := s.raft.Renew(ctx)
	switch {
	case err == nil:
		s.use()
	case errors.Is(err, engine.ErrLost):
		s.cache.remove(s)
	}
	return failed, err
}

// use marks the session as used, so that it is not swept.
func (s *session) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usedAt = s.cache.router.Clock.Now()
}

// close ends the session.
func (s *session) close(ctx context.Context) error {
	err := s.raft.Close(ctx)
	if err == nil {
		s.cache.remove(s)
	}
	return err
}

// tokens returns the tokens of the leases in the session, as this member has
// applied them.
func (s *session) tokens(ctx context.Context) (map[engine.Nonce]fencing.Token, error) {
	requests, err := s.cache.router.Node.Session(ctx, s.id, raftstore.Stale)
	if errors.Is(err, engine.ErrNotHeld) {
		return nil, engine.ErrExpired
	}
	if err != nil {
		return nil, err
	}
	tokens := map[engine.Nonce]fencing.Token{}
	for i := range requests {
		if p := &requests[i].Party; p.Token != fencing.None {
			tokens[p.Nonce] = p.Token
		}
	}
	return tokens, nil
}

// lost notifies the streams of the client of a lost lease.
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

// listen makes the session notify a stream of lost leases.
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

// nextNonce chooses a nonce for a caller that gave none.
func (s *session) nextNonce(ctx context.Context) (engine.Nonce, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastNonce == 0 {
		s.mu.Unlock() // firstNonce locks the cache, and its lock comes first
		first, err := s.cache.firstNonce(ctx, s.id)
		s.mu.Lock()
		if err != nil {
			return 0, err
		}
		s.lastNonce = max(s.lastNonce, first) // another caller may have been faster
	}
	s.lastNonce++
	return s.lastNonce, nil
}
