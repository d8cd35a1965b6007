package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// fastGrant is a grant of the efficiency mode.
type fastGrant struct {
	resources []fencing.Resource
	token     fencing.Token
}

// fastTTL is how long a lease of the session lasts in the efficiency mode.
func (e *entry) fastTTL() time.Duration { return e.ttl }

// acquireFast asks Redis for a grant.
func (e *entry) acquireFast(ctx context.Context, request lease.Request) (lease.Grant, error) {
	return e.askFast(ctx, request, func(session lease.Session) (lease.Grant, error) {
		return e.newOrFound(ctx, session, request)
	})
}

// findFast takes over what another member was granted in Redis for this attempt.
// It asks for nothing new: a client that says what it holds, and does not, must
// be told so.
func (e *entry) findFast(ctx context.Context, request lease.Request) (lease.Grant, error) {
	return e.askFast(ctx, request, func(session lease.Session) (lease.Grant, error) {
		return e.adoptFrom(ctx, session, request)
	})
}

// askFast asks Redis, and looks at the policies again when it has granted.
func (e *entry) askFast(ctx context.Context, request lease.Request, ask func(lease.Session) (lease.Grant, error)) (lease.Grant, error) {
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
	e.mu.Lock()
	over := e.over[request.Nonce]
	e.mu.Unlock()
	if over {
		return lease.Grant{}, fmt.Errorf("%w: attempt %d has ended", lease.ErrHeld, request.Nonce)
	}
	grant, err := ask(session)
	if err != nil {
		return lease.Grant{}, err
	}
	v, err = e.router.fresh(ctx)
	if err != nil { // the next leader finds out; a release would forbid it to
		return lease.Grant{}, fmt.Errorf("%w: granted, but the policies cannot be read: %w", lease.ErrUncertain, err)
	}
	if err := v.allowsEfficiency(request.Resources, request.Mode); err != nil {
		_ = session.Release(context.WithoutCancel(ctx), request.Nonce) // else it expires: it is not renewed
		e.book.ended(e.id, request.Nonce, "released")
		return lease.Grant{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fast[request.Nonce] = fastGrant{resources: request.Resources, token: grant.Token}
	return grant, nil
}

// newOrFound asks Redis. An attempt that another member has granted is found
// again: the client may not have heard of it, or this member not of the client.
// Who waits does not look for it: it gets the lock when the time of the other
// grant, which nobody prolongs, is over.
func (e *entry) newOrFound(ctx context.Context, session lease.Session, request lease.Request) (lease.Grant, error) {
	if request.Wait {
		queued, left := request.Queued, func() {}
		request.Queued = func() {
			left = e.book.waiting(e.id, &request)
			if queued != nil {
				queued()
			}
		}
		defer func() { left() }() // if it was granted, the book has that by then
	}
	grant, held := session.Acquire(ctx, request)
	if held == nil {
		e.book.granted(e, &request, grant.Token, e.router.clock.Now())
	}
	if request.Wait || !errors.Is(held, lease.ErrHeld) {
		return grant, held
	}
	grant, err := e.adoptFrom(ctx, session, request)
	if errors.Is(err, lease.ErrNotHeld) {
		return lease.Grant{}, held // by someone else
	}
	return grant, err
}

// finder is a session that can take over what another member was granted for the
// same attempt.
type finder interface {
	Adopt(ctx context.Context, request lease.Request, token fencing.Token) (lease.Grant, error)
}

// adoptFrom takes over an attempt that Redis has. The error matches ErrNotHeld if
// it has not.
func (e *entry) adoptFrom(ctx context.Context, session lease.Session, request lease.Request) (lease.Grant, error) {
	f, ok := session.(finder)
	if !ok {
		return lease.Grant{}, fmt.Errorf("%w: this engine finds no attempt of another member", lease.ErrNotHeld)
	}
	grant, err := f.Adopt(ctx, request, fencing.None)
	if err == nil {
		e.book.granted(e, &request, grant.Token, e.router.clock.Now())
	}
	return grant, err
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
	session, err := e.router.redis.Open(ctx, lease.SessionConfig{ID: e.id, TTL: e.ttl, Clock: e.router.clock, Lost: e.lost})
	if err != nil {
		return nil, err
	}
	e.redis = session
	return session, nil
}
