package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// findTime bounds how long a grant of an earlier leader is looked for.
const findTime = 5 * time.Second

// fastGrant is a grant of the efficiency mode.
type fastGrant struct {
	resources []fencing.Resource
	token     fencing.Token
}

// fastTTL is how long a lease of the session lasts in the efficiency mode.
func (e *entry) fastTTL() time.Duration { return e.ttl }

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
	e.mu.Lock()
	over := e.over[request.Nonce]
	e.mu.Unlock()
	if over {
		return lease.Grant{}, fmt.Errorf("%w: attempt %d has ended", lease.ErrHeld, request.Nonce)
	}
	grant, err := e.askFast(ctx, session, request)
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

// askFast asks Redis. An attempt that another member has granted is found again:
// the client may not have heard of it, or this member not of the client. Who
// waits finds it by asking again and again, with who does not it takes a look.
func (e *entry) askFast(ctx context.Context, session lease.Session, request lease.Request) (lease.Grant, error) {
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
	grant, err := session.Acquire(ctx, request)
	if err == nil {
		e.book.granted(e, &request, grant.Token, e.router.clock.Now())
	}
	if !request.Wait && errors.Is(err, lease.ErrHeld) && e.holdsInRedis(ctx, &request) {
		return e.findFast(ctx, session, request)
	}
	return grant, err
}

// holdsInRedis reports whether Redis has this very attempt as the holder.
func (e *entry) holdsInRedis(ctx context.Context, request *lease.Request) bool {
	status, err := e.router.redis.Inspect(ctx, request.Resources[0])
	if err != nil {
		return false // it is held, whoever has it
	}
	for i := range status.Holders {
		if p := &status.Holders[i]; p.Session == e.id && p.Nonce == request.Nonce {
			return true
		}
	}
	return false
}

// finder is a session that can take over an attempt which Redis has, whatever
// the engine of another member called it.
type finder interface {
	Adopt(ctx context.Context, request lease.Request) (lease.Grant, error)
}

// findFast takes over an attempt that Redis has. An engine that is no finder
// numbers the tries of a session, and only the try that was granted gets the same
// token again: so it is made to try until it gets there. That finds young
// sessions only.
func (e *entry) findFast(ctx context.Context, session lease.Session, request lease.Request) (lease.Grant, error) {
	limited, cancel := context.WithTimeout(ctx, min(findTime, e.ttl))
	defer cancel()
	ask := session.Acquire
	if f, ok := session.(finder); ok {
		ask = f.Adopt
	}
	for {
		grant, err := ask(limited, request)
		if err == nil {
			e.book.granted(e, &request, grant.Token, e.router.clock.Now())
			return grant, nil
		}
		if limited.Err() != nil && ctx.Err() == nil {
			return lease.Grant{}, fmt.Errorf("%w: an earlier try of this attempt holds the lock, and could not be taken over", lease.ErrUncertain)
		}
		if !errors.Is(err, lease.ErrHeld) || !e.holdsInRedis(limited, &request) {
			return lease.Grant{}, err
		}
	}
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
