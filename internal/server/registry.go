package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
)

// sweepGrace is how long past two TTLs a session that nobody uses is kept in
// mind.
const sweepGrace = 5 * time.Second

// registry is the sessions that this member knows. Sessions live in the Raft
// machine; what is here can be found again, but for leases of the efficiency
// mode, which the client must tell.
type registry struct {
	router *router
	book   *book

	mu      sync.Mutex
	entries map[lease.SessionID]*entry
	chosen  lease.Nonce // the largest that an entry had chosen when it was swept
}

func newRegistry(r *router, b *book) *registry {
	return &registry{router: r, book: b, entries: map[lease.SessionID]*entry{}}
}

// open makes a session known to the service, or finds it again.
func (r *registry) open(ctx context.Context, id lease.SessionID, ttl time.Duration) (*entry, error) {
	if ttl < lease.MinTTL || ttl > lease.MaxTTL {
		return nil, fmt.Errorf("%w: ttl (%v) must be from %v to %v", lease.ErrInvalid, ttl, lease.MinTTL, lease.MaxTTL)
	}
	// The machine is asked about another TTL: it refuses that while the session
	// lives.
	if e := r.find(id); e != nil && e.ttl == ttl {
		if err := e.prolong(ctx); !errors.Is(err, lease.ErrLost) {
			return e, err
		}
	}
	return r.add(id, func(lost func(lease.Nonce, error)) (*raftstore.Session, error) {
		session, err := r.router.raft.Open(ctx, lease.SessionConfig{ID: id, TTL: ttl, Clock: r.router.clock, Lost: lost})
		if err != nil {
			return nil, err
		}
		return session.(*raftstore.Session), nil
	})
}

// attach finds a session that exists. It never makes one: should it end
// meanwhile, that is the answer.
func (r *registry) attach(ctx context.Context, id lease.SessionID) (*entry, error) {
	if e := r.find(id); e != nil {
		if err := e.prolong(ctx); !errors.Is(err, lease.ErrLost) {
			return e, err
		}
	}
	return r.add(id, func(lost func(lease.Nonce, error)) (*raftstore.Session, error) {
		return r.router.raft.Attach(ctx, lease.SessionConfig{ID: id, Clock: r.router.clock, Lost: lost})
	})
}

// find is a session that this member knows. Whoever finds it is about to use it,
// so it is not swept meanwhile.
func (r *registry) find(id lease.SessionID) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e != nil {
		e.use()
	}
	return e
}

// add opens or finds the session in the Raft machine and notes it here. If two
// callers do so at once they share one entry, unless they have met different
// incarnations: the later one is what is there now.
func (r *registry) add(id lease.SessionID, begin func(lost func(lease.Nonce, error)) (*raftstore.Session, error)) (*entry, error) {
	e := &entry{router: r.router, book: r.book, id: id, fast: map[lease.Nonce]fastGrant{}, over: map[lease.Nonce]bool{}, listeners: map[*stream]bool{}}
	e.forget = func() { r.drop(e) }
	e.firstNonce = r.firstNonce
	session, err := begin(e.lost)
	if err != nil {
		return nil, err
	}
	e.raft, e.ttl, e.used = session, session.TTL(), r.router.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.entries[id]; other != nil && other.raft.Incarnation() >= session.Incarnation() {
		return other, nil
	}
	r.entries[id] = e
	return e, nil
}

func (r *registry) drop(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[e.id] == e {
		delete(r.entries, e.id)
	}
}

// nextNonce chooses a nonce for a caller that has none.
func (e *entry) nextNonce(ctx context.Context) (lease.Nonce, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.nonces == 0 {
		e.mu.Unlock() // the registry's lock comes first
		first, err := e.firstNonce(ctx, e.id)
		e.mu.Lock()
		if err != nil {
			return 0, err
		}
		e.nonces = max(e.nonces, first) // another caller may have been faster
	}
	e.nonces++
	return e.nonces, nil
}

// firstNonce is what an entry counts up from, which may be of a session that is
// older than the entry. A nonce that is chosen twice would be answered with what
// the first one was granted. Each leader counts in a range of its own, since it
// does not know what those before it have chosen; there it is above what any
// entry that was swept has chosen, and above all that the session has now.
func (r *registry) firstNonce(ctx context.Context, id lease.SessionID) (lease.Nonce, error) {
	requests, err := r.router.node.Session(ctx, id, raftstore.Stale)
	if errors.Is(err, lease.ErrNotHeld) {
		return 0, lease.ErrExpired
	}
	if err != nil {
		return 0, err
	}
	first := lease.Nonce(r.router.node.Status().Generation) << 32
	for i := range requests {
		first = max(first, requests[i].Party.Nonce)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(first, r.chosen), nil
}

// sweep forgets sessions that nobody has used for long. Their leases have
// ended. A member that does not lead releases nothing: the client may have found
// its leases again through another.
func (r *registry) sweep() {
	now := r.router.clock.Now()
	leads := r.router.node.Leads()
	r.book.sweep(leads)
	r.mu.Lock()
	var old []*entry
	for id, e := range r.entries {
		e.mu.Lock()
		if now.Since(e.used) > 2*e.ttl+sweepGrace {
			old = append(old, e)
			delete(r.entries, id)
			r.chosen = max(r.chosen, e.nonces)
		}
		e.mu.Unlock()
	}
	r.mu.Unlock()
	for _, e := range old {
		e.mu.Lock()
		session := e.redis
		e.mu.Unlock()
		if session != nil && leads {
			_ = session.Close(context.Background()) // what cannot be told has expired
		}
	}
}
