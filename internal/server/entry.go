package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
)

// entry is a session that this member knows: one in the Raft machine, and one in
// the Redis engine when it is first needed. It is a lease.Session.
type entry struct {
	router *router
	book   *book
	id     lease.SessionID
	ttl    time.Duration
	raft   *raftstore.Session
	forget func() // takes it out of the registry
	// firstNonce is what nonces counts up from.
	firstNonce func(context.Context, lease.SessionID) (lease.Nonce, error)

	mu        sync.Mutex
	redis     lease.Session
	fast      map[lease.Nonce]fastGrant // what it holds in the efficiency mode
	over      map[lease.Nonce]bool      // released before Redis was reached
	listeners map[*stream]bool
	used      lease.Instant // when someone last had to do with it
	nonces    lease.Nonce   // the last one that this member chose
}

var _ lease.Session = (*entry)(nil)

// Acquire asks the engine of the lock's mode.
func (e *entry) Acquire(ctx context.Context, request lease.Request) (lease.Grant, error) {
	if err := request.Validate(); err != nil {
		return lease.Grant{}, err
	}
	for _, name := range request.Resources {
		if err := checkName(name); err != nil {
			return lease.Grant{}, err
		}
	}
	mode, err := e.router.local().setMode(&request)
	if err != nil {
		fresh, readErr := e.router.reread(ctx) // what this replica knows may be old
		if readErr != nil {
			return lease.Grant{}, readErr
		}
		if mode, err = fresh.setMode(&request); err != nil {
			return lease.Grant{}, err
		}
	}
	if mode == lease.Efficiency {
		return e.acquireFast(ctx, request)
	}
	return e.raft.Acquire(ctx, request)
}

// Renew prolongs the session in both engines. What is held in the efficiency
// mode is prolonged only while the policies say that it may be.
func (e *entry) Renew(ctx context.Context) ([]lease.Nonce, error) {
	if err := e.prolong(ctx); err != nil {
		return nil, err
	}
	e.mu.Lock()
	session, fast := e.redis, slices.Collect(maps.Keys(e.fast))
	e.mu.Unlock()
	if session == nil || len(fast) == 0 {
		return nil, nil
	}
	if err := e.dropMoved(ctx); err != nil {
		return nil, err
	}
	sent := e.router.clock.Now()
	failed, err := session.Renew(ctx)
	if err != nil {
		return nil, err
	}
	e.book.prolonged(e.id, fast, failed, sent)
	return failed, e.dropMoved(ctx)
}

// prolong renews the session in the Raft machine, and keeps it in mind here.
func (e *entry) prolong(ctx context.Context) error {
	_, err := e.raft.Renew(ctx)
	switch {
	case err == nil:
		e.use()
	case errors.Is(err, lease.ErrLost):
		e.forget()
	}
	return err
}

// use notes that somebody has to do with the session.
func (e *entry) use() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used = e.router.clock.Now()
}

// dropMoved ends what is held in the efficiency mode and may not be any more.
// The client is told that it is lost: a lease that is only not renewed would be
// taken for one that the next renewal covers.
func (e *entry) dropMoved(ctx context.Context) error {
	v, err := e.router.fresh(ctx)
	if err != nil {
		return err
	}
	moved := map[lease.Nonce]error{}
	e.mu.Lock()
	session := e.redis
	for nonce, g := range e.fast {
		if err := v.allowsEfficiency(g.resources, lease.AnyMode); err != nil {
			moved[nonce] = fmt.Errorf("%w: %w", lease.ErrTaken, err)
		}
	}
	e.mu.Unlock()
	for nonce, why := range moved {
		e.lost(nonce, why)
		_ = session.Release(ctx, nonce) // else it expires: it is not renewed
	}
	return nil
}

// Release ends an attempt. One that is not known to be of the efficiency mode is
// ended in both engines, so that a late copy of its Acquire finds that it has
// ended, whatever mode the lock has then.
func (e *entry) Release(ctx context.Context, nonce lease.Nonce) error {
	e.mu.Lock()
	_, fast := e.fast[nonce]
	delete(e.fast, nonce)
	e.mu.Unlock()
	if fast {
		e.book.ended(e.id, nonce, "released")
	}
	if e.router.redis != nil {
		session, err := e.openFast(ctx)
		if err == nil {
			err = session.Release(ctx, nonce)
		} else if !fast && (errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrUnavailable)) {
			// The session's TTL is too long for that mode, or Redis was never
			// reached: nothing was asked of it, and nothing will be.
			e.mu.Lock()
			e.over[nonce] = true
			e.mu.Unlock()
			err = nil
		}
		if err != nil || fast {
			return err
		}
	}
	return e.raft.Release(ctx, nonce)
}

// Close ends the session in both engines.
func (e *entry) Close(ctx context.Context) error {
	e.mu.Lock()
	session := e.redis
	fast := slices.Collect(maps.Keys(e.fast))
	clear(e.fast)
	e.mu.Unlock()
	for _, nonce := range fast {
		e.book.ended(e.id, nonce, "released")
	}
	var fastErr error
	if session != nil {
		fastErr = session.Close(ctx)
	}
	err := e.raft.Close(ctx)
	if err == nil {
		e.forget()
	}
	return errors.Join(err, fastErr)
}

// holds is what the session holds now, as this member knows.
func (e *entry) holds(ctx context.Context) (map[lease.Nonce]fencing.Token, error) {
	requests, err := e.router.node.Session(ctx, e.id, raftstore.Stale)
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
	e.mu.Lock()
	defer e.mu.Unlock()
	for nonce, g := range e.fast {
		holds[nonce] = g.token
	}
	return holds, nil
}

// lost passes a loss on to the streams of the client.
func (e *entry) lost(nonce lease.Nonce, err error) {
	e.mu.Lock()
	_, fast := e.fast[nonce]
	delete(e.fast, nonce)
	listeners := make([]*stream, 0, len(e.listeners))
	for s := range e.listeners {
		listeners = append(listeners, s)
	}
	e.mu.Unlock()
	if fast {
		e.book.ended(e.id, nonce, "")
	}
	for _, s := range listeners {
		s.tellLost(e.id, nonce, err)
	}
}

func (e *entry) listen(s *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners[s] = true
}

func (e *entry) unlisten(s *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, s)
}
