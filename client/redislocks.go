package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/perlease"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

const (
	// reconnectPause is the time between two tries to connect to the Redis nodes.
	reconnectPause = 30 * time.Second
	// reconnectTimeout bounds one try.
	reconnectTimeout = 5 * time.Second
	// detourTime is how long requests go through the service after the Redis nodes
	// did not answer.
	detourTime = 5 * time.Second
	// detourLogPause is the minimum time between two log lines about detours.
	detourLogPause = time.Minute
)

// redisLocks is a perlease.Engine for locks in efficiency mode. It calls the Redis
// nodes directly, or through a member of the service while they cannot be reached.
type redisLocks struct {
	config  config
	source  *remote.Backend
	service *remote.Efficiency
	clock   engine.Clock

	direct      atomic.Pointer[direct]
	closing     sync.WaitGroup
	usedService atomic.Bool // a request has gone through the service
	detouring   atomic.Bool // a detour began and no direct call has succeeded since
	unreachable bool        // the last connect failed, which was logged

	mu           sync.Mutex
	detourEnd    engine.Instant
	detourLogged engine.Instant // when a detour was last logged
}

// direct is the connection to a Redis fleet.
type direct struct {
	fleet   engine.Fleet
	backend *redlockadapter.Backend // nil while the nodes cannot be used
}

var _ perlease.Engine = (*redisLocks)(nil)

func newRedisLocks(source *remote.Backend, c config) *redisLocks {
	e := &redisLocks{config: c, source: source, service: source.Efficiency(), clock: engine.SystemClock()}
	e.direct.Store(&direct{})
	return e
}

// connect connects to the Redis fleet of the current topology. Until it is connected,
// requests go through the service. It reports whether connecting failed and the caller has
// to try again. It must not be called concurrently.
func (e *redisLocks) connect(ctx context.Context) (again bool) {
	fleet := e.source.Topology().Fleet
	now := e.direct.Load()
	if fleet.Equal(now.fleet) && (now.backend != nil || fleet.IsZero()) || e.config.noRedis {
		return false
	}
	if !fleet.Equal(now.fleet) {
		e.replace(&direct{fleet: fleet})
	}
	next := &direct{fleet: fleet}
	if !fleet.IsZero() {
		var err error
		if next.backend, err = e.open(ctx, fleet); err != nil {
			if ctx.Err() == nil && !e.unreachable {
				e.unreachable = true
				e.config.logger.Warn("leased: the Redis nodes cannot be used from here; "+
					"locks in efficiency mode go through the service", "error", err)
			}
		} else if e.unreachable {
			e.unreachable = false
			e.config.logger.Info("leased: locks in efficiency mode go directly to the Redis nodes again")
		}
	}
	e.replace(next)
	return next.backend == nil && !fleet.IsZero()
}

func (e *redisLocks) open(ctx context.Context, fleet engine.Fleet) (*redlockadapter.Backend, error) {
	if err := e.config.checkOptions(fleet); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	if err := e.config.probe(ctx, fleet); err != nil {
		return nil, err
	}
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, Topology: e.source.Topology,
		NodeTimeout: e.config.timeout, Hooks: redlockadapter.Hooks{Outdated: e.source.TopologyIsOutdated},
		Logger: slog.New(slog.DiscardHandler)} // the members log the state of the nodes
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, e.config.options(address))
	}
	return redlockadapter.New(ctx, config)
}

// replace replaces the connection and closes the former one in the background, since its
// nodes may hang.
func (e *redisLocks) replace(next *direct) {
	if former := e.direct.Swap(next); former.backend != nil {
		e.closing.Go(func() {
			_ = former.backend.Close(context.Background()) // leases end with their TTL
		})
	}
}

// backend returns the connection to Redis, nil while requests go through the service.
func (e *redisLocks) backend() *redlockadapter.Backend {
	d := e.direct.Load()
	if d.backend == nil {
		return nil
	}
	if e.detouring.Load() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.clock.Now().Until(e.detourEnd) > 0 {
			return nil
		}
	}
	return d.backend
}

// startDetour reports whether err of a direct call says that the Redis nodes did not
// answer. If so, requests go through the service for a while.
func (e *redisLocks) startDetour(ctx context.Context, resources []fencing.Resource, err error) bool {
	switch {
	case ctx.Err() != nil || !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain):
		return false
	case errors.Is(err, engine.ErrVersion) || errors.Is(err, engine.ErrLost):
		return false
	}
	topology := e.source.Topology()
	_, routeErr := topology.Route(&engine.Request{Resources: resources})
	if routeErr != nil || !topology.Fleet.Equal(e.direct.Load().fleet) {
		return false // the call failed because the topology has changed
	}
	now := e.clock.Now()
	e.detouring.Store(true)
	e.mu.Lock()
	e.detourEnd = now.Add(detourTime)
	log := e.detourLogged.IsZero() || now.Since(e.detourLogged) >= detourLogPause
	if log {
		e.detourLogged = now
	}
	e.mu.Unlock()
	if log {
		e.config.logger.Warn("leased: the Redis nodes do not answer; "+
			"locks in efficiency mode go through the service until they answer", "error", err)
	}
	return true
}

// Acquire requests a lease from the Redis nodes or through a member.
func (e *redisLocks) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration,
	request engine.Request) (engine.Held, error) {
	directly := func(b *redlockadapter.Backend) (engine.Held, error) {
		own := request
		own.User = e.source.Topology().User // a member renews the lease for this user only
		held, err := b.Acquire(ctx, session, ttl, own)
		if err == nil {
			e.detouring.Store(false)
		}
		return held, err
	}
	if b := e.backend(); b != nil {
		held, err := directly(b)
		if err == nil || !e.startDetour(ctx, request.Resources, err) {
			return held, err
		}
	}
	e.usedService.Store(true)
	held, err := e.service.Acquire(ctx, session, ttl, request)
	if b := e.endDetour(ctx, err); b != nil && !errors.Is(err, engine.ErrUncertain) {
		return directly(b)
	}
	return held, err
}

// endDetour ends a detour if err of a call through the service says that no member answers: the Redis nodes may answer
// again. It returns the connection to them, nil if there is none or the call has not failed that way.
func (e *redisLocks) endDetour(ctx context.Context, err error) *redlockadapter.Backend {
	if ctx.Err() != nil || !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain) {
		return nil
	}
	e.mu.Lock()
	e.detourEnd = e.clock.Now()
	e.mu.Unlock()
	return e.direct.Load().backend
}

// Renew extends leases. A lease on a lock that is leaving efficiency mode is not extended, and
// a lease on a lock that has left it is lost. Leases that could not be extended directly are
// extended through a member.
func (e *redisLocks) Renew(ctx context.Context, leases []engine.Held) []error {
	errs := make([]error, len(leases))
	var rest []int // indices into leases
	topology := e.source.Topology()
	for i := range leases {
		if errs[i] = clientcore.ModeError(&topology, leases[i].Resources); errs[i] == nil {
			rest = append(rest, i)
		}
	}
	if b := e.backend(); b != nil && len(rest) > 0 {
		var again []int
		for j, err := range b.Renew(ctx, pick(leases, rest)) {
			errs[rest[j]] = err
			if err != nil && e.startDetour(ctx, leases[rest[j]].Resources, err) {
				again = append(again, rest[j])
			}
		}
		rest = again
	}
	if len(rest) > 0 {
		e.usedService.Store(true)
		for j, err := range e.renewAnyhow(ctx, pick(leases, rest)) {
			errs[rest[j]] = err
		}
	}
	return errs
}

// renewAnyhow extends leases through a member and directly at the same time, since either may not answer for longer
// than a lease lasts. It returns when all are extended, or when both have answered.
func (e *redisLocks) renewAnyhow(ctx context.Context, leases []engine.Held) []error {
	results := make(chan []error, 2)
	missing := 1
	go func() { results <- e.service.Renew(ctx, leases) }()
	if b := e.direct.Load().backend; b != nil {
		missing++
		go func() { results <- b.Renew(ctx, leases) }()
	}
	errs := <-results
	for missing--; missing > 0 && errors.Join(errs...) != nil; missing-- {
		for i, err := range <-results {
			if err == nil || errors.Is(errs[i], engine.ErrUnavailable) || errors.Is(errs[i], engine.ErrUncertain) {
				errs[i] = err
			}
		}
	}
	return errs
}

// pick returns the leases at these indices.
func pick(leases []engine.Held, indices []int) []engine.Held {
	picked := make([]engine.Held, len(indices))
	for j, i := range indices {
		picked[j] = leases[i]
	}
	return picked
}

// Release ends a lease, directly or through a member. A lease without a name can only exist
// if a member acquired it: direct acquires clean up after themselves.
func (e *redisLocks) Release(ctx context.Context, held engine.Held) error {
	if held.Name == "" && !e.usedService.Load() {
		return nil
	}
	if b := e.backend(); b != nil && held.Name != "" {
		err := b.Release(ctx, held)
		if err == nil || !e.startDetour(ctx, held.Resources, err) {
			return err
		}
	}
	err := e.service.Release(ctx, held)
	if b := e.endDetour(ctx, err); b != nil && held.Name != "" {
		return b.Release(ctx, held)
	}
	return err
}

// locks returns the backend that inspects locks in efficiency mode.
func (e *redisLocks) locks() engine.Backend {
	if b := e.backend(); b != nil {
		return b
	}
	return e.service
}

// close closes the connections to Redis.
func (e *redisLocks) close() {
	e.replace(&direct{})
	e.closing.Wait()
}
