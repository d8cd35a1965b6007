package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// topologyPatience bounds the wait for a topology that the Redis nodes, or the
// Raft machine, know already.
const topologyPatience = 3 * time.Second

// router knows which mode a lock has, by the topology that this member has
// applied. That may be an old one, and two engines protect a lock from it: the
// Raft machine refuses locks in the other mode in the order of the log, and the
// Redis nodes refuse calls under a version older than the newest that they have
// seen.
type router struct {
	node  *raftstore.Node
	raft  *raftstore.Backend
	redis *fleet.Current
	clock engine.Clock
}

// modeOf returns the mode of a lock: the one that it leaves while it moves.
func (r *router) modeOf(name fencing.Resource) engine.Mode {
	mode, _ := r.node.Topology().ModeOf(name)
	return mode
}

// engine returns what serves a lock. For locks in correctness mode it works at the
// leader only.
func (r *router) engine(name fencing.Resource) (engine.Backend, engine.Mode, error) {
	if err := name.Validate(); err != nil {
		return nil, 0, err
	}
	mode := r.modeOf(name)
	if mode == engine.Correctness {
		return r.raft, mode, nil
	}
	backend, err := r.redis.Backend()
	if err != nil {
		return nil, mode, err
	}
	return backend, mode, nil
}

// efficient reports whether all locks whose names begin with prefix are in
// efficiency mode.
func (r *router) efficient(prefix string) bool {
	policies := r.node.Topology().Policies
	if policies.For(fencing.Resource(prefix)).Mode != engine.Efficiency {
		return false
	}
	for _, p := range policies.All() {
		if strings.HasPrefix(p.Prefix, prefix) && (p.Mode != engine.Efficiency || p.Next != engine.AnyMode) {
			return false
		}
	}
	return true
}

// newer waits for a topology with a version above after. The error matches
// engine.ErrUnavailable if none comes soon enough.
func (r *router) newer(ctx context.Context, after uint64) error {
	limited, cancel := context.WithTimeout(ctx, topologyPatience)
	defer cancel()
	if _, err := r.node.NextTopology(limited, after); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: the policies have changed, and member %s has not heard of it within %v; is it cut off from the leader?",
			engine.ErrUnavailable, r.node.ID(), topologyPatience)
	}
	return nil
}

// again decides about an attempt that failed under a topology: nil says that it
// should be routed again. A request that waits also waits for a lock that moves,
// and for the efficiency mode to be ready.
func (r *router) again(ctx context.Context, request *engine.Request, topology *engine.Topology, err error) error {
	var moving *engine.MigratingError
	outdated := errors.Is(err, redlockadapter.ErrVersion) || errors.Is(err, engine.ErrModeMismatch) && request.Mode == engine.AnyMode
	_, refused := topology.Route(request)
	switch {
	case errors.Is(err, engine.ErrUncertain):
		return err
	case outdated:
		return r.newer(ctx, topology.Version)
	case request.Wait && errors.Is(err, engine.ErrUnavailable) && (errors.As(err, &moving) || refused != nil):
		if _, ended := r.node.NextTopology(ctx, topology.Version); ended != nil {
			return err
		}
		return nil
	}
	return err
}
