package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// efficiency serves leases in efficiency mode for callers anywhere. It keeps
// nothing: a caller names its lease with each call, at any member. The Backend
// checks the mode of the locks at each attempt, by the topology whose version the
// attempt carries to the Redis nodes.
type efficiency struct {
	router *router
}

// sessionMark begins the session ids of leases in efficiency mode that were
// acquired without a session.
var sessionMark = [4]byte{'e', 'f', 'f', 0}

func newEfficiencySession() engine.SessionID {
	id := engine.NewSessionID()
	copy(id[:], sessionMark[:])
	return id
}

// checkSession refuses the session id of a lease in efficiency mode.
func checkSession(id engine.SessionID) error {
	if [4]byte(id[:4]) != sessionMark {
		return nil
	}
	return fmt.Errorf("%w: sessionId %s is of a lease in efficiency mode, which has no session; name the lease by resource and token", engine.ErrInvalid, id)
}

// acquire asks for a lease, and again while the topology, or the fleet, changes
// under it. The error is a *engine.ModeError if the locks are in correctness mode.
func (e *efficiency) acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, engine.Grant, error) {
	for {
		topology := e.router.node.Topology()
		backend, err := e.router.redis.Backend()
		if err != nil {
			return engine.Held{}, engine.Grant{}, e.noBackend(&topology, &request, err)
		}
		held, grant, err := backend.Acquire(ctx, session, ttl, request)
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, engine.ErrModeMismatch):
			return held, grant, err
		case e.replaced(backend):
			continue
		}
		if err := e.router.again(ctx, &request, &topology, err); err != nil {
			return held, grant, err
		}
	}
}

// noBackend returns why a request cannot be served without Redis: the reason of
// the topology, if it has one.
func (e *efficiency) noBackend(topology *engine.Topology, request *engine.Request, err error) error {
	mode, routeErr := topology.Route(request)
	switch {
	case routeErr != nil:
		return routeErr
	case mode != engine.Efficiency:
		return &engine.ModeError{Resource: request.Resources[0], Want: engine.Efficiency, Have: mode}
	}
	return err
}

// replaced reports whether the fleet has changed, so that backend is closed.
func (e *efficiency) replaced(backend *redlockadapter.Backend) bool {
	now, _ := e.router.redis.Backend()
	return now != nil && now != backend
}

// renew extends leases and returns an error for each: nil, one that matches
// engine.ErrLost, or one that says that it is not known to be renewed. A lease
// whose lock is leaving the efficiency mode is lost.
func (e *efficiency) renew(ctx context.Context, leases []engine.Held) []error {
	for {
		version := e.router.node.Topology().Version
		backend, err := e.router.redis.Backend()
		if err != nil {
			errs := make([]error, len(leases))
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
		errs := backend.Renew(ctx, leases)
		outdated := false
		for i, err := range errs {
			outdated = outdated || errors.Is(err, redlockadapter.ErrVersion)
			errs[i] = lossOf(err)
		}
		if !outdated || e.router.newer(ctx, version) != nil {
			return errs
		}
	}
}

// release gives a lease back.
func (e *efficiency) release(ctx context.Context, held engine.Held) error {
	backend, err := e.router.redis.Backend()
	if err != nil {
		return err
	}
	return backend.Release(ctx, held)
}

// releaseUnnamed releases what an attempt was granted if its client never heard of
// it: the connection to another member broke before the answer.
func (e *efficiency) releaseUnnamed(ctx context.Context, key attempt, resources []string) error {
	backend, err := e.router.redis.Backend()
	if err != nil || len(resources) == 0 {
		return err
	}
	name := fencing.Resource(resources[0])
	status, err := backend.Inspect(ctx, name)
	if err != nil {
		return err
	}
	for i := range status.Holders {
		if p := &status.Holders[i]; p.Session == key.session && p.Nonce == key.nonce {
			held, err := backend.Find(ctx, name, p.Token)
			if errors.Is(err, engine.ErrNotHeld) {
				return nil
			}
			if err != nil {
				return err
			}
			return backend.Release(ctx, held)
		}
	}
	return nil
}

// find returns the lease that holds a lock under a token.
func (e *efficiency) find(ctx context.Context, name fencing.Resource, token fencing.Token) (engine.Held, error) {
	backend, err := e.router.redis.Backend()
	if err != nil {
		return engine.Held{}, err
	}
	return backend.Find(ctx, name, token)
}

// lossOf returns an error that says that a lease is lost as one that says nothing
// else: the reason may match the errors of an acquire.
func lossOf(err error) error {
	if !errors.Is(err, engine.ErrLost) {
		return err
	}
	for _, kind := range []error{engine.ErrExpired, engine.ErrNotHeld, engine.ErrTaken} {
		if errors.Is(err, kind) {
			return &lossError{text: err.Error(), kind: kind}
		}
	}
	return &lossError{text: err.Error(), kind: engine.ErrLost}
}

// lossError is the loss of a lease. It matches its kind, and engine.ErrLost.
type lossError struct {
	text string
	kind error
}

// Error returns the text.
func (e *lossError) Error() string { return e.text }

// Unwrap returns the kind of the loss.
func (e *lossError) Unwrap() error { return e.kind }
