package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/perlease"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/redlockadapter"
)

const (
	// connectAgain is the time between two attempts to reach the Redis nodes.
	connectAgain = 30 * time.Second
	// connectLimit bounds one of them.
	connectLimit = 5 * time.Second
	// detour is how long locks go through the service after the Redis nodes could
	// not be reached.
	detour = 5 * time.Second
	// quietTime is the least time between two log lines on detours.
	quietTime = time.Minute
	// closeTime bounds the closing of connections to Redis.
	closeTime = 5 * time.Second
)

// redisLocks provides locks in efficiency mode: straight to the Redis nodes, or through
// a member of the service while they cannot be reached. It is a perlease.Engine.
type redisLocks struct {
	config  config
	source  *remote.Backend
	service *remote.Efficiency
	clock   engine.Clock

	direct   atomic.Pointer[direct]
	asked    atomic.Bool // something has gone through the service
	detoured atomic.Bool // a detour has begun and no call has succeeded since

	mu    sync.Mutex
	until engine.Instant // end of the detour
	said  engine.Instant // when a detour was last logged
	shown string         // the last reason why the nodes could not be reached
}

// direct is the connection to a Redis fleet, or the attempt to have one.
type direct struct {
	fleet   engine.Fleet
	backend *redlockadapter.Backend // nil if the nodes cannot be used
}

var _ perlease.Engine = (*redisLocks)(nil)

func newRedisLocks(source *remote.Backend, c config) *redisLocks {
	e := &redisLocks{config: c, source: source, service: source.Efficiency(), clock: engine.SystemClock()}
	e.direct.Store(&direct{})
	return e
}

// connect brings the connection to Redis in line with the topology, and reports
// whether locks in efficiency mode have to go through the service at present.
func (e *redisLocks) connect(ctx context.Context) (again bool) {
	fleet := e.source.Topology().Fleet
	now := e.direct.Load()
	if fleet.Equal(now.fleet) && (now.backend != nil || fleet.IsZero()) || e.config.noRedis {
		return false
	}
	next := &direct{fleet: fleet}
	if !fleet.IsZero() {
		var err error
		if next.backend, err = e.open(ctx, fleet); err != nil {
			if ctx.Err() == nil {
				e.unreachable(err)
			}
		} else if e.unreachable(nil) {
			e.config.logger.Info("leased: locks in efficiency mode go straight to the Redis nodes again")
		}
	}
	e.replace(next)
	return next.backend == nil && !fleet.IsZero()
}

func (e *redisLocks) open(ctx context.Context, fleet engine.Fleet) (*redlockadapter.Backend, error) {
	if err := e.config.checkClear(fleet); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if err := e.config.probe(ctx, fleet); err != nil {
		return nil, err
	}
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, Topology: e.source.Topology,
		Logger: slog.New(slog.DiscardHandler)} // the members log what becomes of nodes
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, e.config.options(address))
	}
	return redlockadapter.New(ctx, config)
}

// replace puts a connection in the place of the former one, which is closed.
func (e *redisLocks) replace(next *direct) {
	if former := e.direct.Swap(next); former.backend != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = former.backend.Close(ctx) // leases end by themselves
	}
}

// unreachable notes why the Redis nodes cannot be used, nil if they can, and logs
// each reason once. It reports whether the reason has changed.
func (e *redisLocks) unreachable(err error) bool {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	e.mu.Lock()
	changed := reason != e.shown
	first := e.shown == ""
	e.shown = reason
	e.mu.Unlock()
	if changed && err != nil && first {
		e.config.logger.Warn("leased: the Redis nodes cannot be used from here; locks in efficiency mode go through the service", "error", err)
	}
	return changed
}

// backend is the direct way, nil while locks go through the service.
func (e *redisLocks) backend() *redlockadapter.Backend {
	d := e.direct.Load()
	if d.backend == nil {
		return nil
	}
	if e.detoured.Load() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.clock.Now().Until(e.until) > 0 {
			return nil
		}
	}
	return d.backend
}

// failed reports whether err of a direct call says that the Redis nodes could not
// be reached. A detour then begins.
func (e *redisLocks) failed(ctx context.Context, resources []fencing.Resource, err error) bool {
	switch {
	case ctx.Err() != nil || !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain):
		return false
	case errors.Is(err, redlockadapter.ErrVersion) || errors.Is(err, engine.ErrLost):
		return false
	}
	topology := e.source.Topology()
	if _, routeErr := topology.Route(&engine.Request{Resources: resources}); routeErr != nil || !topology.Fleet.Equal(e.direct.Load().fleet) {
		return false // the topology is the reason
	}
	now := e.clock.Now()
	e.detoured.Store(true)
	e.mu.Lock()
	e.until = now.Add(detour)
	log := e.said.IsZero() || now.Since(e.said) >= quietTime
	if log {
		e.said = now
	}
	e.mu.Unlock()
	if log {
		e.config.logger.Warn("leased: the Redis nodes do not answer; locks in efficiency mode go through the service meanwhile", "error", err)
	}
	return true
}

// Acquire asks the Redis nodes, or a member.
func (e *redisLocks) Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, error) {
	if b := e.backend(); b != nil {
		held, _, err := b.Acquire(ctx, session, ttl, request)
		if err == nil {
			e.detoured.Store(false)
			return held, nil
		}
		if !e.failed(ctx, request.Resources, err) {
			return engine.Held{}, err
		}
	}
	e.asked.Store(true)
	return e.service.Acquire(ctx, session, ttl, request)
}

// Renew extends leases. A lease on a lock that is leaving the efficiency mode is
// not extended, and one on a lock that has left it is lost. What could not be
// extended directly is extended through the service.
func (e *redisLocks) Renew(ctx context.Context, leases []engine.Held) []error {
	errs := make([]error, len(leases))
	var rest []int // of leases
	topology := e.source.Topology()
	for i := range leases {
		if errs[i] = stays(&topology, &leases[i]); errs[i] == nil {
			rest = append(rest, i)
		}
	}
	if b := e.backend(); b != nil && len(rest) > 0 {
		held := make([]engine.Held, len(rest))
		for j, i := range rest {
			held[j] = leases[i]
		}
		var again []int
		for j, err := range b.Renew(ctx, held) {
			errs[rest[j]] = err
			if err != nil && e.failed(ctx, leases[rest[j]].Resources, err) {
				again = append(again, rest[j])
			}
		}
		rest = again
	}
	if len(rest) > 0 {
		held := make([]engine.Held, len(rest))
		for j, i := range rest {
			held[j] = leases[i]
		}
		e.asked.Store(true)
		for j, err := range e.service.Renew(ctx, held) {
			errs[rest[j]] = err
		}
	}
	return errs
}

// stays returns why a lease cannot be renewed by the topology, nil if it can.
func stays(topology *engine.Topology, held *engine.Held) error {
	for _, name := range held.Resources {
		mode, err := topology.ModeOf(name)
		if err != nil {
			return err
		}
		if mode != engine.Efficiency {
			return fmt.Errorf("%w: lock %q has moved to %s mode", engine.ErrTaken, string(name), mode)
		}
	}
	return nil
}

// Release ends a lease, directly or through a member. What an unanswered acquire
// has left behind is known to members only: the direct way cleans up by itself.
func (e *redisLocks) Release(ctx context.Context, held engine.Held) error {
	if held.Name == "" && !e.asked.Load() {
		return nil
	}
	if b := e.backend(); b != nil && held.Name != "" {
		err := b.Release(ctx, held)
		if err == nil || !e.failed(ctx, held.Resources, err) {
			return err
		}
	}
	return e.service.Release(ctx, held)
}

// locks is how locks in efficiency mode are looked at: directly or through a
// member.
func (e *redisLocks) locks() engine.Backend {
	if b := e.backend(); b != nil {
		return b
	}
	return e.service
}

// close ends the connections to Redis.
func (e *redisLocks) close() { e.replace(&direct{}) }
