package virtual

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// failoverBackend is an engine.Backend on the nodes that are up. When a node restarts,
// sessions continue on the new node, as when the server takes over an unknown session.
type failoverBackend struct{ cluster *cluster }

var _ engine.Backend = failoverBackend{}

func (f failoverBackend) view() *view {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return f.cluster.view
}

// Open starts a session.
func (f failoverBackend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	v := f.view()
	inner, err := v.backend.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return &failoverSession{failoverBackend: f, config: config, moving: make(chan struct{}, 1), view: v,
		inner: inner.(*raftstore.Session)}, nil
}

// Inspect returns holders and waiters.
func (f failoverBackend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	return f.view().backend.Inspect(ctx, resource)
}

// Watch is not used here.
func (f failoverBackend) Watch(context.Context, fencing.Resource, func(engine.Status)) error {
	return engine.ErrUnsupported
}

// Break revokes a lease.
func (f failoverBackend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return f.view().backend.Break(ctx, resource, token)
}

// failoverSession is a session that follows the current view.
type failoverSession struct {
	failoverBackend failoverBackend
	config          engine.SessionConfig

	moving chan struct{} // held while it changes the view
	view   *view
	inner  *raftstore.Session
}

// on returns the session in the current view.
func (s *failoverSession) on(ctx context.Context) (engine.Session, error) {
	select {
	case s.moving <- struct{}{}:
		defer func() { <-s.moving }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, context.Cause(ctx))
	}
	v := s.failoverBackend.view()
	if v == s.view {
		return s.inner, nil
	}
	inner, err := v.backend.Attach(ctx, s.config)
	if err != nil {
		return nil, err
	}
	if inner.Incarnation() != s.inner.Incarnation() {
		return nil, fmt.Errorf("%w: another incarnation has this session id", engine.ErrExpired)
	}
	s.view, s.inner = v, inner
	return inner, nil
}

// Acquire requests a grant.
func (s *failoverSession) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	inner, err := s.on(ctx)
	if err != nil {
		return engine.Grant{}, err
	}
	return inner.Acquire(ctx, request)
}

// Renew extends the session.
func (s *failoverSession) Renew(ctx context.Context, held ...engine.Held) ([]engine.Nonce, error) {
	inner, err := s.on(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Renew(ctx, held...)
}

// Update renews a lease.
func (s *failoverSession) Update(ctx context.Context, held engine.Held) error {
	inner, err := s.on(ctx)
	if err != nil {
		return err
	}
	return inner.Update(ctx, held)
}

// Release ends an attempt.
func (s *failoverSession) Release(ctx context.Context, held engine.Held) error {
	inner, err := s.on(ctx)
	if err != nil {
		return err
	}
	return inner.Release(ctx, held)
}

// Close ends the session.
func (s *failoverSession) Close(ctx context.Context, held ...engine.Held) error {
	inner, err := s.on(ctx)
	if err != nil {
		return err
	}
	return inner.Close(ctx, held...)
}
