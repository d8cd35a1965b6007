package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// sweepGrace is how long, past two TTLs, the registry keeps an unused session.
const sweepGrace = 5 * time.Second

// registry is the sessions of the correctness mode that this member knows.
// Sessions live in the Raft machine; the registry can be filled again from it.
type registry struct {
	router *router

	mu       sync.Mutex
	sessions map[engine.SessionID]*session
	chosen   engine.Nonce // the largest that a swept session had chosen
}

func newRegistry(r *router) *registry {
	return &registry{router: r, sessions: map[engine.SessionID]*session{}}
}

// open opens a session, or finds it again.
func (r *registry) open(ctx context.Context, id engine.SessionID, ttl time.Duration) (*session, error) {
	if ttl < engine.MinTTL || ttl > engine.MaxTTL {
		return nil, fmt.Errorf("%w: ttl (%v) must be from %v to %v", engine.ErrInvalid, ttl, engine.MinTTL, engine.MaxTTL)
	}
	if err := checkSession(id); err != nil {
		return nil, err
	}
	// The machine decides about another TTL: it refuses it while the session lives.
	if s := r.find(id); s != nil && s.ttl == ttl {
		if _, err := s.Renew(ctx); !errors.Is(err, engine.ErrLost) {
			return s, err
		}
	}
	return r.add(id, func(lost func(engine.Nonce, error)) (*raftstore.Session, error) {
		session, err := r.router.raft.Open(ctx, engine.SessionConfig{ID: id, TTL: ttl, Clock: r.router.clock, Lost: lost})
		if err != nil {
			return nil, err
		}
		return session.(*raftstore.Session), nil
	})
}

// attach finds a session that exists. It never opens one: if it ends meanwhile,
// that is the answer.
func (r *registry) attach(ctx context.Context, id engine.SessionID) (*session, error) {
	if err := checkSession(id); err != nil {
		return nil, err
	}
	if s := r.find(id); s != nil {
		if _, err := s.Renew(ctx); !errors.Is(err, engine.ErrLost) {
			return s, err
		}
	}
	return r.add(id, func(lost func(engine.Nonce, error)) (*raftstore.Session, error) {
		return r.router.raft.Attach(ctx, engine.SessionConfig{ID: id, Clock: r.router.clock, Lost: lost})
	})
}

// find returns a session that this member knows. The caller is about to use it,
// so it is not swept meanwhile.
func (r *registry) find(id engine.SessionID) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[id]
	if s != nil {
		s.use()
	}
	return s
}

// add opens or finds the session in the Raft machine and registers it. Two callers
// that do so at once share one session, unless they met different incarnations:
// the later one is the present one.
func (r *registry) add(id engine.SessionID, begin func(lost func(engine.Nonce, error)) (*raftstore.Session, error)) (*session, error) {
	s := &session{router: r.router, id: id, listeners: map[*stream]bool{}, firstNonce: r.firstNonce}
	s.forget = func() { r.drop(s) }
	raft, err := begin(s.lost)
	if err != nil {
		return nil, err
	}
	s.raft, s.ttl, s.used = raft, raft.TTL(), r.router.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.sessions[id]; other != nil && other.raft.Incarnation() >= raft.Incarnation() {
		return other, nil
	}
	r.sessions[id] = s
	return s, nil
}

func (r *registry) drop(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.id] == s {
		delete(r.sessions, s.id)
	}
}

// firstNonce returns the number from which this member chooses nonces in a
// session. A nonce that is chosen twice would get what the first one was granted.
// Each leader has a range of its own, since it does not know what earlier leaders
// chose; in it the number is above what any swept session chose, and above all
// that the session has now.
func (r *registry) firstNonce(ctx context.Context, id engine.SessionID) (engine.Nonce, error) {
	requests, err := r.router.node.Session(ctx, id, raftstore.Stale)
	if errors.Is(err, engine.ErrNotHeld) {
		return 0, engine.ErrExpired
	}
	if err != nil {
		return 0, err
	}
	first := engine.Nonce(r.router.node.Status().Generation) << 32
	for i := range requests {
		first = max(first, requests[i].Party.Nonce)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(first, r.chosen), nil
}

// sweep forgets sessions that nobody has used for long. Their leases have ended.
func (r *registry) sweep() {
	now := r.router.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.sessions {
		s.mu.Lock()
		if now.Since(s.used) > 2*s.ttl+sweepGrace {
			delete(r.sessions, id)
			r.chosen = max(r.chosen, s.nonces)
		}
		s.mu.Unlock()
	}
}
