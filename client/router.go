package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/redlockadapter"
)

// topologyTimeout is how long a call waits for a newer topology after an answer
// showed that the known one is stale.
const topologyTimeout = time.Second

// router is an engine.Backend for locks of both modes.
type router struct {
	service *remote.Backend // locks in correctness mode
	redis   *redisLocks     // locks in efficiency mode

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[*session]bool
	waiting  map[*waitingAcquire]bool
}

// waitingAcquire is an acquire in efficiency mode that waits for its lock.
type waitingAcquire struct {
	request *engine.Request
	cancel  context.CancelCauseFunc
}

var (
	_ engine.Backend        = (*router)(nil)
	_ engine.TopologySource = (*router)(nil)
	_ engine.Signer         = (*router)(nil)

	_ engine.RefusalReporter = (*router)(nil)
)

func newRouter(service *remote.Backend, c config) *router {
	r := &router{service: service, redis: newRedisLocks(service, c), sessions: map[*session]bool{},
		waiting: map[*waitingAcquire]bool{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// errRerouted ends a wait or a watch whose lock is now served elsewhere.
var errRerouted = fmt.Errorf("%w: the lock has changed its mode, or the Redis fleet has changed", engine.ErrUnavailable)

// stale reports whether err may be due to a topology that has changed or is about to.
func stale(request *engine.Request, err error) bool {
	var migrating *engine.MigratingError
	var mode *engine.ModeError
	switch {
	case errors.As(err, &migrating), errors.Is(err, redlockadapter.ErrVersion), errors.Is(err, errRerouted):
		return true
	case errors.As(err, &mode):
		return request.Mode == engine.AnyMode || mode.Have == request.Mode
	}
	return false
}

// awaitTopology waits for a topology newer than version, for topologyTimeout at most.
// If none arrives, the client follows another member from now on.
func (r *router) awaitTopology(ctx context.Context, version uint64) {
	limited, cancel := context.WithTimeout(ctx, topologyTimeout)
	defer cancel()
	if _, err := r.service.NextTopology(limited, version); err != nil && ctx.Err() == nil {
		r.service.RefreshTopology()
	}
}

// start follows the topology in the background.
func (r *router) start() { r.running.Go(r.follow) }

// follow applies each new topology until the router is closed, and reconnects to
// Redis nodes that could not be reached.
func (r *router) follow() {
	for r.ctx.Err() == nil {
		topology := r.service.Topology()
		version := topology.Version
		fleet := r.redis.direct.Load().fleet
		r.apply(&topology, !fleet.IsZero() && !fleet.Equal(topology.Fleet))
		again := r.redis.connect(r.ctx)
		ctx, cancel := r.ctx, context.CancelFunc(func() {})
		if again {
			ctx, cancel = context.WithTimeout(r.ctx, reconnectPause)
		}
		_, _ = r.service.NextTopology(ctx, version)
		cancel()
	}
}

// apply ends the leases and waits that a new topology ends. A new fleet ends all
// leases in efficiency mode, because the locks of the new fleet are free.
func (r *router) apply(topology *engine.Topology, newFleet bool) {
	r.mu.Lock()
	for w := range r.waiting {
		if mode, err := topology.Route(w.request); err != nil || mode != engine.Efficiency || newFleet {
			w.cancel(errRerouted)
		}
	}
	sessions := slices.Collect(maps.Keys(r.sessions))
	r.mu.Unlock()
	for _, s := range sessions {
		s.efficiency.Lose(func(held engine.Held) error {
			if newFleet {
				return fmt.Errorf("%w: the Redis fleet has changed", engine.ErrTaken)
			}
			if err := checkMode(topology, &held); errors.Is(err, engine.ErrLost) {
				return err
			}
			return nil // a lock that is changing its mode is held until its TTL passes
		})()
	}
}

// addWaiting returns a context for an acquire in efficiency mode that waits. The
// context ends with errRerouted when the lock is served elsewhere. The caller calls
// the returned function when the acquire returns.
func (r *router) addWaiting(ctx context.Context, request *engine.Request) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &waitingAcquire{request: request, cancel: cancel}
	r.mu.Lock()
	r.waiting[w] = true
	r.mu.Unlock()
	return ctx, func() {
		r.mu.Lock()
		delete(r.waiting, w)
		r.mu.Unlock()
		cancel(nil)
	}
}

// close closes all connections.
func (r *router) close(context.Context) error {
	r.cancel()
	err := r.service.Close()
	r.running.Wait()
	r.redis.close()
	return err
}

// Topology returns the newest known topology.
func (r *router) Topology() engine.Topology { return r.service.Topology() }

// NextTopology returns the first known topology whose version is above after.
func (r *router) NextTopology(ctx context.Context, after uint64) (engine.Topology, error) {
	return r.service.NextTopology(ctx, after)
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
	if mode, _ := r.service.Topology().ModeOf(resource); mode == engine.Efficiency {
		return r.service.Efficiency().Sign(ctx, resource, token)
	}
	return r.service.Sign(ctx, resource, token)
}

// ReportRefusal adds a refused write to the history of its lock. The service keeps the
// history of both modes.
func (r *router) ReportRefusal(ctx context.Context, refusal engine.Refusal) error {
	return r.service.ReportRefusal(ctx, refusal)
}

// backendOf returns the backend that knows the holders of a lock. A lock that is
// changing its mode still has the holders of its old mode.
func (r *router) backendOf(resource fencing.Resource) engine.Backend {
	if mode, _ := r.service.Topology().ModeOf(resource); mode == engine.Efficiency {
		return r.redis.locks()
	}
	return r.service
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
		r.checkDetour(ctx, watched, resource, err)
		if !errors.Is(err, errRerouted) && !errors.Is(context.Cause(watching), errRerouted) {
			return err
		}
	}
	return context.Cause(ctx)
}

// cancelWhenRerouted ends a watch when another backend knows the holders of the lock.
func (r *router) cancelWhenRerouted(ctx context.Context, resource fencing.Resource, watched engine.Backend,
	cancel context.CancelCauseFunc) {
	for {
		version := r.service.Topology().Version
		if r.backendOf(resource) != watched {
			cancel(errRerouted)
			return
		}
		limited, done := context.WithTimeout(ctx, detourTime)
		_, _ = r.service.NextTopology(limited, version)
		done()
		if ctx.Err() != nil {
			return
		}
	}
}
