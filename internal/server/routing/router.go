package routing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// topologyTimeout bounds the wait for a topology that the Redis nodes, or the Raft
// machine, know already.
const topologyTimeout = 3 * time.Second

// Router finds the engine of a lock and the leader of the cluster, and calls other members.
type Router struct {
	// Node is this member of the Raft cluster.
	Node *raftstore.Node
	// Raft serves locks in correctness mode. It works on the leader only.
	Raft *raftstore.Backend
	// Redis connects to the nodes that serve locks in efficiency mode.
	Redis *fleet.Connection
	// Clock measures how long sessions are unused and leases are watched.
	Clock engine.Clock
	// Address is the API address of this member.
	Address string
	// PeerTLS returns the TLS configuration for other members, or nil for none.
	PeerTLS func() *tls.Config
	// Secret returns the secret that this member authenticates with at other members, or "".
	Secret func() string
}

// ModeOf returns the mode of a lock. During a migration it is the mode that the
// lock leaves.
func (r *Router) ModeOf(name fencing.Resource) engine.Mode {
	mode, _ := r.Node.Topology().ModeOf(name)
	return mode
}

// Engine returns the engine that serves a lock, and the lock's mode.
func (r *Router) Engine(name fencing.Resource) (engine.Backend, engine.Mode, error) {
	if err := name.Validate(); err != nil {
		return nil, 0, err
	}
	mode := r.ModeOf(name)
	if mode == engine.Correctness {
		return r.Raft, mode, nil
	}
	backend, err := r.Redis.Backend()
	if err != nil {
		return nil, mode, err
	}
	return backend, mode, nil
}

// Only reports whether all locks whose names start with prefix are in a mode.
func (r *Router) Only(mode engine.Mode, prefix string) bool {
	topology := r.Node.Topology()
	if now, _ := topology.ModeOf(fencing.Resource(prefix)); now != mode {
		return false
	}
	return !slices.ContainsFunc(topology.Policies.All(), func(p engine.Policy) bool {
		now, migrating := topology.ModeOf(fencing.Resource(p.Prefix))
		return strings.HasPrefix(p.Prefix, prefix) && (now != mode || migrating != nil)
	})
}

// WaitTopology waits until this member has applied a topology with a version above
// after. The error matches engine.ErrUnavailable if that takes too long.
func (r *Router) WaitTopology(ctx context.Context, after uint64) error {
	limited, cancel := context.WithTimeout(ctx, topologyTimeout)
	defer cancel()
	if _, err := r.Node.NextTopology(limited, after); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: the policies have changed, and member %s did not receive the new ones within %v; check "+
			"its connection to the leader",
			engine.ErrUnavailable, r.Node.ID(), topologyTimeout)
	}
	return nil
}

// Ask calls ask, which routes a call by the topology that this member has applied. It calls ask again with a newer
// topology while the Redis nodes refuse the call because they have seen one: the lock may have another mode.
func Ask[T any](ctx context.Context, r *Router, ask func() (T, error)) (answer T, err error) {
	for {
		version := r.Node.Topology().Version
		if answer, err = ask(); !errors.Is(err, engine.ErrVersion) {
			return answer, err
		}
		if err := r.WaitTopology(ctx, version); err != nil {
			return answer, err
		}
	}
}

// CheckEfficiency confirms that a lock was in efficiency mode when the Redis nodes answered a read of it. The nodes
// refuse a read under a topology from before a migration, but neither they nor this member may have heard that the
// migration is complete. So while the lock is migrating, CheckEfficiency asks the leader. The error matches
// engine.ErrVersion if the lock has left the mode.
func (r *Router) CheckEfficiency(ctx context.Context, name fencing.Resource) error {
	mode, migrating := r.Node.Topology().ModeOf(name)
	if mode == engine.Efficiency && migrating != nil {
		if _, err := r.Node.Inspect(ctx, name, raftstore.Linearizable); err != nil {
			return err
		}
		mode = r.ModeOf(name)
	}
	if mode != engine.Efficiency {
		return engine.ErrVersion
	}
	return nil
}

// Acquire routes a request by the topology that this member has applied and calls
// try with the mode of its locks. It calls try again while the topology or the
// Redis fleet changes under the request.
func (r *Router) Acquire(ctx context.Context, request *engine.Request, try func(mode engine.Mode) error) error {
	for {
		topology := r.Node.Topology()
		connected, _ := r.Redis.Backend()
		mode, err := topology.Route(request)
		routed := err == nil
		if routed {
			err = try(mode)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		var migrating *engine.MigratingError
		switch now, _ := r.Redis.Backend(); {
		case mode == engine.Efficiency && now != nil && now != connected:
			// The fleet has changed: leases of the old fleet are void.
		case errors.Is(err, engine.ErrUncertain):
			return err
		case errors.Is(err, engine.ErrVersion), errors.Is(err, engine.ErrModeMismatch) && request.Mode == engine.AnyMode:
			if err := r.WaitTopology(ctx, topology.Version); err != nil {
				return err
			}
		case errors.Is(err, engine.ErrUnavailable) && (!routed || errors.As(err, &migrating)):
			// The locks migrate, or efficiency mode is not ready.
			if request.Wait && r.WaitTopology(ctx, topology.Version) == nil {
				continue
			}
			if leader, _ := r.Node.Leader(); leader == "" {
				// Another member may know that the migration is complete. A client asks no other member about a
				// MigratingError.
				return fmt.Errorf("%w: member %s knows no leader, and its policies may be old: %v", engine.ErrUnavailable,
					r.Node.ID(), err)
			}
			if !request.Wait || ctx.Err() != nil {
				return err
			}
		default:
			return err
		}
	}
}
