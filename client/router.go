package client

import (
	"context"
	"errors"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/perlease"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// router is an engine.RoutedBackend: the service for locks in correctness mode, and the
// Redis nodes for locks in efficiency mode.
type router struct {
	*remote.Backend // the service
	redis           *redisLocks

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var (
	_ engine.RoutedBackend   = (*router)(nil)
	_ engine.Signer          = (*router)(nil)
	_ engine.RefusalReporter = (*router)(nil)
)

// follow follows the topology until close: it connects to each new fleet, and
// reconnects to Redis nodes that could not be reached.
func (r *router) follow() {
	for r.ctx.Err() == nil {
		version := r.Topology().Version
		again := r.redis.connect(r.ctx)
		ctx, cancel := r.ctx, context.CancelFunc(func() {})
		if again {
			ctx, cancel = context.WithTimeout(r.ctx, reconnectPause)
		}
		_, _ = r.NextTopology(ctx, version)
		cancel()
	}
}

// Open opens a session. One in efficiency mode exists only in this process.
func (r *router) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if config.Mode != engine.Efficiency {
		return r.Backend.Open(ctx, config)
	}
	if ctx.Err() != nil {
		return nil, engine.Cause(ctx)
	}
	return perlease.NewSession(r.redis, config), nil
}

// close closes all connections.
func (r *router) close(context.Context) error {
	r.cancel()
	err := r.Backend.Close()
	r.running.Wait()
	r.redis.close()
	return err
}

// Inspect returns the holders and waiters of a lock.
func (r *router) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	asked := r.backendOf(resource)
	status, err := asked.Inspect(ctx, resource)
	r.checkDetour(ctx, asked, resource, err)
	return status, err
}

// Break ends the lease with this token.
func (r *router) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	asked := r.backendOf(resource)
	err := asked.Break(ctx, resource, token)
	r.checkDetour(ctx, asked, resource, err)
	return err
}

// checkDetour starts a detour if err says that the Redis nodes did not answer. The caller
// returns err, and package lease repeats the call.
func (r *router) checkDetour(ctx context.Context, asked engine.Backend, resource fencing.Resource, err error) {
	if _, direct := asked.(*redlockadapter.Backend); direct && err != nil {
		r.redis.startDetour(ctx, []fencing.Resource{resource}, err)
	}
}

// Sign returns the signed token of a lease that the caller holds. Any member of the
// service signs it, also for a lock in efficiency mode.
func (r *router) Sign(ctx context.Context, resource fencing.Resource, token fencing.Token) (engine.SignedToken, error) {
	if mode, _ := r.Topology().ModeOf(resource); mode == engine.Efficiency {
		return r.Efficiency().Sign(ctx, resource, token)
	}
	return r.Backend.Sign(ctx, resource, token)
}

// backendOf returns the backend that knows the holders of a lock. Only the service knows those of a lock that is
// changing its mode: the change may be complete, and this process not have heard of it.
func (r *router) backendOf(resource fencing.Resource) engine.Backend {
	if mode, changing := r.Topology().ModeOf(resource); mode == engine.Efficiency && changing == nil {
		return r.redis.locks()
	}
	return r.Backend
}

// Watch calls changed with the status of a lock, and again after each change. It
// follows the lock from one mode to the other.
func (r *router) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	for ctx.Err() == nil {
		watched := r.backendOf(resource)
		watching, cancel := context.WithCancelCause(ctx)
		go r.cancelWhenRerouted(watching, resource, watched, cancel)
		err := watched.Watch(watching, resource, changed)
		cancel(nil)
		if !errors.Is(context.Cause(watching), clientcore.ErrRerouted) {
			r.checkDetour(ctx, watched, resource, err)
			return err
		}
	}
	return engine.Cause(ctx)
}

// cancelWhenRerouted ends a watch when another backend knows the holders of the lock.
func (r *router) cancelWhenRerouted(ctx context.Context, resource fencing.Resource, watched engine.Backend,
	cancel context.CancelCauseFunc) {
	for {
		version := r.Topology().Version
		if r.backendOf(resource) != watched {
			cancel(clientcore.ErrRerouted)
			return
		}
		limited, done := context.WithTimeout(ctx, detourTime)
		_, _ = r.NextTopology(limited, version)
		done()
		if ctx.Err() != nil {
			return
		}
	}
}
