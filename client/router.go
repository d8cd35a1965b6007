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

// freshLook is how long a newer topology is waited for when an answer shows that
// the known one is stale.
const freshLook = time.Second

// router is a engine.Backend for locks of both modes. Its decide is the one place
// where it is decided which way a lock goes.
type router struct {
	service *remote.Backend // locks in correctness mode
	redis   *redisLocks     // locks in efficiency mode

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[*session]bool
	waits    map[*wait]bool
}

// wait is an acquire in efficiency mode that waits for its lock.
type wait struct {
	request *engine.Request
	cancel  context.CancelCauseFunc
}

var (
	_ engine.Backend        = (*router)(nil)
	_ engine.TopologySource = (*router)(nil)
)

func newRouter(service *remote.Backend, c config) *router {
	r := &router{service: service, redis: newRedisLocks(service, c), sessions: map[*session]bool{}, waits: map[*wait]bool{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// decide returns the mode by which a request is served, under the topology that it
// returns too.
func (r *router) decide(request *engine.Request) (engine.Topology, engine.Mode, error) {
	topology := r.service.Topology()
	mode, err := topology.Route(request)
	return topology, mode, err
}

// stale reports whether an error of an engine, or of decide, may be due to a
// topology that has changed or is about to.
func stale(request *engine.Request, err error) bool {
	var moving *engine.MigratingError
	var mode *engine.ModeError
	switch {
	case errors.As(err, &moving), errors.Is(err, redlockadapter.ErrVersion), errors.Is(err, errRerouted):
		return true
	case errors.As(err, &mode):
		return request.Mode == engine.AnyMode || mode.Have == request.Mode
	}
	return false
}

// errRerouted is the cause of the end of a wait whose lock has another way now.
var errRerouted = fmt.Errorf("%w: the lock has changed its mode, or the Redis fleet has changed", engine.ErrUnavailable)

// newer waits a moment for a topology after this version. If none comes another
// member is asked for it from now on.
func (r *router) newer(ctx context.Context, version uint64) error {
	limited, cancel := context.WithTimeout(ctx, freshLook)
	defer cancel()
	_, err := r.service.NextTopology(limited, version)
	if err != nil && ctx.Err() == nil {
		r.service.RefreshTopology()
	}
	return err
}

// start follows the topology.
func (r *router) start() { r.running.Go(r.follow) }

// follow acts on each new topology until the router is closed, and tries to reach
// Redis nodes that cannot be reached.
func (r *router) follow() {
	for r.ctx.Err() == nil {
		topology := r.service.Topology()
		version := topology.Version
		fleet := r.redis.direct.Load().fleet
		r.apply(&topology, !fleet.IsZero() && !fleet.Equal(topology.Fleet))
		again := r.redis.connect(r.ctx)
		ctx, cancel := r.ctx, context.CancelFunc(func() {})
		if again {
			ctx, cancel = context.WithTimeout(r.ctx, connectAgain)
		}
		_, _ = r.service.NextTopology(ctx, version)
		cancel()
	}
}

// apply ends leases and waits that the topology has ended. With a new fleet all
// leases of the efficiency mode are lost; the locks of the new fleet are free.
func (r *router) apply(topology *engine.Topology, newFleet bool) {
	r.mu.Lock()
	for w := range r.waits {
		if mode, err := topology.Route(w.request); err != nil || mode != engine.Efficiency || newFleet {
			w.cancel(errRerouted)
		}
	}
	sessions := slices.Collect(maps.Keys(r.sessions))
	r.mu.Unlock()
	for _, s := range sessions {
		tell := s.fast.Lose(func(held engine.Held) error {
			if newFleet {
				return fmt.Errorf("%w: the Redis fleet has changed", engine.ErrTaken)
			}
			if err := stays(topology, &held); errors.Is(err, engine.ErrLost) {
				return err
			}
			return nil // a lock that is moving is held until its time runs out
		})
		r.running.Go(tell) // a holder may be slow
	}
}

// await returns a context for an acquire in efficiency mode that waits. It ends
// with errRerouted when the lock has another way.
func (r *router) await(ctx context.Context, request *engine.Request) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &wait{request: request, cancel: cancel}
	r.mu.Lock()
	r.waits[w] = true
	r.mu.Unlock()
	return ctx, func() {
		r.mu.Lock()
		delete(r.waits, w)
		r.mu.Unlock()
		cancel(nil)
	}
}

// close ends all connections.
func (r *router) close(context.Context) error {
	r.cancel()
	err := r.service.Close()
	r.running.Wait()
	r.redis.close()
	return err
}

// Topology returns the newest topology that is known.
func (r *router) Topology() engine.Topology { return r.service.Topology() }

// NextTopology returns the first known topology whose version is above after.
func (r *router) NextTopology(ctx context.Context, after uint64) (engine.Topology, error) {
	return r.service.NextTopology(ctx, after)
}

// Inspect tells who holds the lock and who waits for it.
func (r *router) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	return r.locks(resource).Inspect(ctx, resource)
}

// Break takes a lease away from its holder.
func (r *router) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return r.locks(resource).Break(ctx, resource, token)
}

// locks returns where a lock is looked at. One that is moving is still where it
// was.
func (r *router) locks(resource fencing.Resource) engine.Backend {
	if mode, _ := r.service.Topology().ModeOf(resource); mode == engine.Efficiency {
		return r.redis.locks()
	}
	return r.service
}

// Watch tells the status now and after each change, also when the lock goes another
// way.
func (r *router) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	for ctx.Err() == nil {
		watched := r.locks(resource)
		watching, cancel := context.WithCancelCause(ctx)
		go r.untilRerouted(watching, resource, watched, cancel)
		err := watched.Watch(watching, resource, changed)
		cancel(nil)
		if !errors.Is(err, errRerouted) && !errors.Is(context.Cause(watching), errRerouted) {
			return err
		}
	}
	return context.Cause(ctx)
}

// untilRerouted ends a watch when the lock is to be looked at elsewhere.
func (r *router) untilRerouted(ctx context.Context, resource fencing.Resource, watched engine.Backend, cancel context.CancelCauseFunc) {
	for {
		version := r.service.Topology().Version
		if r.locks(resource) != watched {
			cancel(errRerouted)
			return
		}
		limited, done := context.WithTimeout(ctx, detour)
		_, _ = r.service.NextTopology(limited, version)
		done()
		if ctx.Err() != nil {
			return
		}
	}
}
