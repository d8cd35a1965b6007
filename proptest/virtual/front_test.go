package virtual

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// front is a engine.Backend on whatever nodes are up: when one was opened again,
// sessions go on with the new one, in the way in which the server takes over a
// session that it does not know.
type front struct{ cluster *cluster }

var _ engine.Backend = front{}

func (f front) view() *view {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return f.cluster.view
}

// Open starts a session.
func (f front) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	v := f.view()
	inner, err := v.backend.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return &frontSession{front: f, config: config, turn: make(chan struct{}, 1), view: v, inner: inner.(*raftstore.Session)}, nil
}

// Inspect tells who holds a lock.
func (f front) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	return f.view().backend.Inspect(ctx, resource)
}

// Watch is not used here.
func (f front) Watch(context.Context, fencing.Resource, func(engine.Status)) error {
	return engine.ErrUnsupported
}

// Break takes a lease away.
func (f front) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return f.view().backend.Break(ctx, resource, token)
}

// frontSession is a session that moves from view to view.
type frontSession struct {
	front  front
	config engine.SessionConfig

	turn  chan struct{} // held while it moves
	view  *view
	inner *raftstore.Session
}

// on is the session in the present view.
func (s *frontSession) on(ctx context.Context) (engine.Session, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, context.Cause(ctx))
	}
	v := s.front.view()
	if v == s.view {
		return s.inner, nil
	}
	inner, err := v.backend.Attach(ctx, s.config)
	if err != nil {
		return nil, err
	}
	if inner.Incarnation() != s.inner.Incarnation() {
		return nil, fmt.Errorf("%w: another session has its number now", engine.ErrExpired)
	}
	s.view, s.inner = v, inner
	return inner, nil
}

// Acquire asks for a grant.
func (s *frontSession) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	inner, err := s.on(ctx)
	if err != nil {
		return engine.Grant{}, err
	}
	return inner.Acquire(ctx, request)
}

// Renew prolongs the session.
func (s *frontSession) Renew(ctx context.Context) ([]engine.Nonce, error) {
	inner, err := s.on(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Renew(ctx)
}

// Release ends an attempt.
func (s *frontSession) Release(ctx context.Context, nonce engine.Nonce) error {
	inner, err := s.on(ctx)
	if err != nil {
		return err
	}
	return inner.Release(ctx, nonce)
}

// Close ends the session.
func (s *frontSession) Close(ctx context.Context) error {
	inner, err := s.on(ctx)
	if err != nil {
		return err
	}
	return inner.Close(ctx)
}
