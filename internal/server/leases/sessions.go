package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// unusedGrace is how long, after two TTLs without use, a session stays cached.
const unusedGrace = 5 * time.Second

// The first bytes of the ids of sessions that the service opens itself.
var (
	// singleMark marks a session that was opened for one lease. It is closed when
	// the lease is released.
	singleMark = [4]byte{'o', 'n', 'e', 0}
	// redisMark marks the id under which a lease in efficiency mode is known that
	// was acquired without a session. There is no such session.
	redisMark = [4]byte{'e', 'f', 'f', 0}
)

func newMarkedID(mark [4]byte) engine.SessionID {
	id := engine.NewSessionID()
	copy(id[:], mark[:])
	return id
}

func hasMark(id engine.SessionID, mark [4]byte) bool { return [4]byte(id[:4]) == mark }

// sessions is a cache of the sessions that this member serves as the leader. The
// Raft machine has the sessions; the cache can be filled from it again.
type sessions struct {
	router *routing.Router
	limits *limits.Limits

	mu         sync.Mutex
	byID       map[engine.SessionID]*session
	sweptNonce engine.Nonce // the largest that a swept session had chosen
}

// open opens a session, or finds one that is open with the same TTL.
func (c *sessions) open(ctx context.Context, id engine.SessionID, ttl time.Duration) (*session, error) {
	if err := c.limits.CheckTTL(ttl); err != nil {
		return nil, err
	}
	// The machine rejects another TTL while the session is open.
	return c.get(ctx, id, func(s *session) bool { return s.ttl == ttl }, func(config engine.SessionConfig) (*raftstore.Session, error) {
		config.TTL = ttl
		opened, err := c.router.Raft.Open(ctx, config)
		if err != nil {
			return nil, err
		}
		return opened.(*raftstore.Session), nil
	})
}

// attach finds a session that is open. It never opens one: if the session has ended
// the error matches engine.ErrLost. Every call that names a session finds it here, so
// that only its owner can use it: for another user the error matches
// engine.ErrForbidden.
func (c *sessions) attach(ctx context.Context, id engine.SessionID) (*session, error) {
	return c.get(ctx, id, func(*session) bool { return true }, func(config engine.SessionConfig) (*raftstore.Session, error) {
		return c.router.Raft.Attach(ctx, config)
	})
}

// get returns the cached session, renewed, if it is usable. Otherwise it asks the
// Raft machine for it, which refuses a session of another user. A cached session of
// another user may have ended.
func (c *sessions) get(ctx context.Context, id engine.SessionID, usable func(*session) bool,
	ask func(engine.SessionConfig) (*raftstore.Session, error)) (*session, error) {
	if hasMark(id, redisMark) {
		return nil, fmt.Errorf("%w: sessionId %s belongs to a lease in efficiency mode, which has no session; name the lease by resource and token", engine.ErrInvalid, id)
	}
	if s := c.find(id); s != nil && usable(s) && auth.Owns(ctx, s.raft.User()) {
		if err := s.renew(ctx); !errors.Is(err, engine.ErrLost) {
			return s, err
		}
	}
	s := &session{cache: c, id: id, listeners: map[*stream]bool{}}
	raft, err := ask(engine.SessionConfig{ID: id, User: auth.UserName(ctx), Clock: c.router.Clock, Lost: s.lost})
	if err != nil {
		return nil, err
	}
	s.raft, s.ttl, s.usedAt = raft, raft.TTL(), c.router.Clock.Now()
	return c.add(s), nil
}

// find returns a cached session, and marks it as used.
func (c *sessions) find(id engine.SessionID) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s != nil {
		s.use()
	}
	return s
}

// add caches a session. Two callers that add the same session share the first one,
// unless they have different incarnations: then the later incarnation stays.
func (c *sessions) add(s *session) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.byID[s.id]; other != nil && other.raft.Incarnation() >= s.raft.Incarnation() {
		return other
	}
	c.byID[s.id] = s
	return s
}

// remove removes a session that has ended.
func (c *sessions) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] == s {
		delete(c.byID, s.id)
	}
}

// firstNonce returns the number above which this member chooses nonces in a
// session. A nonce that is chosen twice would return the grant of the first
// attempt. Each leader has a range of its own, since it does not know which nonces
// earlier leaders chose. In this range, the number is above every nonce that a swept
// session chose.
func (c *sessions) firstNonce() engine.Nonce {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(engine.Nonce(c.router.Node.Status().Generation)<<32, c.sweptNonce)
}

// sweep removes sessions that were not used for long. Their leases have expired.
func (c *sessions) sweep() {
	now := c.router.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.byID {
		s.mu.Lock()
		if now.Since(s.usedAt) > 2*s.ttl+unusedGrace {
			delete(c.byID, id)
			c.sweptNonce = max(c.sweptNonce, s.lastNonce)
		}
		s.mu.Unlock()
	}
}

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
func (s *session) renew(ctx context.Context) error {
	err := s.raft.Extend(ctx)
	switch {
	case err == nil:
		s.use()
	case errors.Is(err, engine.ErrLost):
		s.cache.remove(s)
	}
	return err
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

// lost notifies the streams of the client of a lost lease.
func (s *session) lost(nonce engine.Nonce, err error) {
	s.mu.Lock()
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	for _, st := range listeners {
		st.notify(s.id, nonce, err)
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

// nextNonce chooses a nonce for a caller that gave none. The session does not use it now.
func (s *session) nextNonce() (engine.Nonce, error) {
	first := s.cache.firstNonce()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastNonce == 0 {
		s.lastNonce = first
	}
	for {
		s.lastNonce++
		if used, err := s.raft.Attempt(s.lastNonce); err != nil || used.Code == machine.Ended {
			return s.lastNonce, err
		}
	}
}
