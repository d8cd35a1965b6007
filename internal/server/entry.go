package server

import (
	"context"
	"errors"
	"fmt"
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
	id     lease.SessionID
	ttl    time.Duration // 0 if this member does not know
	raft   lease.Session
	forget func()            // takes it out of the registry
	ended  func(lease.Nonce) // notes why an attempt has ended, for who watches

	mu        sync.Mutex
	redis     lease.Session
	fast      map[lease.Nonce]fastGrant // what it holds in the efficiency mode
	listeners map[*stream]bool
	used      lease.Instant // the last renewal
	nonces    lease.Nonce   // the last one that this member chose
}

var _ lease.Session = (*entry)(nil)

// fastGrant is a grant of the efficiency mode.
type fastGrant struct {
	resources []fencing.Resource
	token     fencing.Token
}

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

// acquireFast asks Redis, and looks at the policies again when it has granted.
func (e *entry) acquireFast(ctx context.Context, request lease.Request) (lease.Grant, error) {
	v, err := e.router.fresh(ctx)
	if err == nil {
		err = v.allowsEfficiency(request.Resources, request.Mode)
	}
	if err != nil {
		return lease.Grant{}, err
	}
	session, err := e.openFast(ctx)
	if err != nil {
		return lease.Grant{}, err
	}
	grant, err := session.Acquire(ctx, request)
	if err != nil {
		return lease.Grant{}, err
	}
	v, err = e.router.fresh(ctx)
	if err != nil { // the next leader finds out; a release would forbid it to
		return lease.Grant{}, fmt.Errorf("%w: granted, but the policies cannot be read: %w", lease.ErrUncertain, err)
	}
	if err := v.allowsEfficiency(request.Resources, request.Mode); err != nil {
		_ = session.Release(context.WithoutCancel(ctx), request.Nonce) // else it expires: it is not renewed
		return lease.Grant{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fast[request.Nonce] = fastGrant{resources: request.Resources, token: grant.Token}
	return grant, nil
}

// openFast opens the session in the Redis engine, which asks nobody.
func (e *entry) openFast(ctx context.Context) (lease.Session, error) {
	if e.router.redis == nil {
		return nil, errNoRedis
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.redis != nil {
		return e.redis, nil
	}
	ttl := e.ttl
	if ttl == 0 {
		ttl = lease.DefaultTTL
	}
	session, err := e.router.redis.Open(ctx, lease.SessionConfig{ID: e.id, TTL: ttl, Clock: e.router.clock, Lost: e.lost})
	if err != nil {
		return nil, err
	}
	e.redis = session
	return session, nil
}

// Renew prolongs the session in both engines. What is held in the efficiency
// mode is prolonged only while the policies say that it may be.
func (e *entry) Renew(ctx context.Context) ([]lease.Nonce, error) {
	if _, err := e.raft.Renew(ctx); err != nil {
		if errors.Is(err, lease.ErrLost) {
			e.forget()
		}
		return nil, err
	}
	e.mu.Lock()
	e.used = e.router.clock.Now()
	session, fast := e.redis, len(e.fast)
	e.mu.Unlock()
	if session == nil || fast == 0 {
		return nil, nil
	}
	if err := e.dropMoved(ctx); err != nil {
		return nil, err
	}
	failed, err := session.Renew(ctx)
	if err != nil {
		return nil, err
	}
	return failed, e.dropMoved(ctx)
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
	e.ended(nonce)
	e.mu.Lock()
	_, fast := e.fast[nonce]
	delete(e.fast, nonce)
	e.mu.Unlock()
	if e.router.redis != nil {
		session, err := e.openFast(ctx)
		if err == nil {
			err = session.Release(ctx, nonce)
		} else if !fast && errors.Is(err, lease.ErrInvalid) {
			err = nil // the session's TTL is too long for that mode: nothing was asked of it
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
	for nonce := range e.fast {
		e.ended(nonce)
	}
	clear(e.fast)
	e.mu.Unlock()
	var fast error
	if session != nil {
		fast = session.Close(ctx)
	}
	err := e.raft.Close(ctx)
	if err == nil {
		e.forget()
	}
	return errors.Join(err, fast)
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
	delete(e.fast, nonce)
	listeners := make([]*stream, 0, len(e.listeners))
	for s := range e.listeners {
		listeners = append(listeners, s)
	}
	e.mu.Unlock()
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
