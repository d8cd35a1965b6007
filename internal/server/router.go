package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
)

const (
	// reserved begins the names that the service uses itself.
	reserved = "leased:"
	// movingMark begins the prefix of a policy that says of another prefix that
	// its locks are on the move to another mode.
	movingMark = reserved + "moving/"
	// policyAge is how old the policies may be by which a lease of the
	// efficiency mode is granted or renewed.
	policyAge = time.Second
)

// router knows which mode a lock has. A lock must never have holders in both
// engines, and this is why it has not:
//
// The policies are state of the Raft machine, and the machine itself refuses
// locks of the other mode, in the order of the log. So for the correctness mode
// nothing here has to be right.
//
// A lease of the efficiency mode is granted, or renewed, only if a read of the
// policies through the log, begun less than policyAge before the answer leaves
// the engine, says that the lock has that mode and is not on the move. Only a
// leader can make that read. To move a lock away the mover first commits a mark
// that it is on the move, then waits for policyAge and the longest TTL that the
// Redis engine allows, and only then commits the new policy. After policyAge no
// member answers by policies without the mark; after the TTL what was answered
// before has ended, since it was not renewed. A move to the efficiency mode is
// refused by the machine while the lock is in use.
//
// This counts on clocks that run at about the same rate, as the efficiency mode
// does anyway; on nothing else, and only while a lock changes its mode.
type router struct {
	node  *raftstore.Node
	raft  *raftstore.Backend
	redis Efficiency
	clock lease.Clock

	mu    sync.Mutex
	known view
	read  lease.Instant // before known was asked for
}

// view is the policies as of some moment.
type view struct{ policies lease.Policies }

// modeOf is the mode of a lock. Without a policy it is the correctness mode.
func (v view) modeOf(name fencing.Resource) lease.Mode {
	if mode := v.policies.For(name).Mode; mode != lease.AnyMode {
		return mode
	}
	return lease.Correctness
}

// moving reports whether the lock is on the move to another mode.
func (v view) moving(name fencing.Resource) bool {
	return strings.HasPrefix(v.policies.For(movingMark+name).Prefix, movingMark)
}

// local is what this replica knows, however old.
func (r *router) local() view {
	policies, _, _ := r.node.Policies(context.Background(), raftstore.Stale) // a stale read cannot fail
	return view{policies}
}

// fresh is the policies as of less than policyAge ago. It is for a leader only.
func (r *router) fresh(ctx context.Context) (view, error) {
	sent := r.clock.Now()
	r.mu.Lock()
	if !r.read.IsZero() && sent.Since(r.read) < policyAge {
		defer r.mu.Unlock()
		return r.known, nil
	}
	r.mu.Unlock()
	return r.reread(ctx)
}

// reread reads the policies through the log.
func (r *router) reread(ctx context.Context) (view, error) {
	sent := r.clock.Now()
	policies, _, err := r.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return view{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read.IsZero() || sent.Since(r.read) > 0 {
		r.known, r.read = view{policies}, sent
	}
	return view{policies}, nil
}

// setMode is the one mode of the locks of a request, if it has one and the
// caller has no other idea of it.
func (v view) setMode(request *lease.Request) (lease.Mode, error) {
	first := v.modeOf(request.Resources[0])
	for _, name := range request.Resources {
		mode := v.modeOf(name)
		if request.Mode != lease.AnyMode && mode != request.Mode {
			return 0, &lease.ModeError{Resource: name, Want: request.Mode, Have: mode}
		}
		if mode != first {
			return 0, fmt.Errorf("%w: a set has one mode: %q has %s, %q has %s; take them one after the other",
				lease.ErrInvalid, string(request.Resources[0]), first, string(name), mode)
		}
	}
	return first, nil
}

// allowsEfficiency is nil if a lease of the efficiency mode on these locks may
// be granted or prolonged.
func (v view) allowsEfficiency(names []fencing.Resource, expected lease.Mode) error {
	for _, name := range names {
		if v.moving(name) {
			return fmt.Errorf("%w: lock %q is on the move to another mode; try again when its policy has been changed", lease.ErrUnavailable, string(name))
		}
		if v.modeOf(name) != lease.Efficiency {
			return &lease.ModeError{Resource: name, Want: lease.Efficiency, Have: lease.Correctness}
		}
	}
	if expected == lease.Correctness {
		return &lease.ModeError{Resource: names[0], Want: expected, Have: lease.Efficiency}
	}
	return nil
}

// engine is what serves a lock, by what this replica knows.
func (r *router) engine(name fencing.Resource) (lease.Backend, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if r.local().modeOf(name) == lease.Correctness {
		return r.raft, nil
	}
	if r.redis == nil {
		return nil, errNoRedis
	}
	if !r.node.Leads() {
		_, err := r.reread(context.Background())
		if err != nil {
			return nil, err
		}
	}
	return r.redis, nil
}

// checkName refuses what is no name, and the names of the service itself.
func checkName(name fencing.Resource) error {
	if err := name.Validate(); err != nil {
		return err
	}
	if strings.HasPrefix(string(name), reserved) {
		return fmt.Errorf("%w: names that begin with %q belong to the service: %q", lease.ErrInvalid, reserved, string(name))
	}
	return nil
}

var errNoRedis = fmt.Errorf("%w: the lock is of the efficiency mode, and this service has no Redis nodes; "+
	"start it with Redis nodes, or change the lock's policy", lease.ErrUnsupported)
