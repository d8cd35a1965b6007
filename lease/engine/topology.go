package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Topology has the policies, and the Redis nodes that serve efficiency mode. A service
// publishes it to clients. Every change has a new Version.
type Topology struct {
	// Version grows with every change. Redis nodes refuse calls under a version
	// older than the newest that they have seen.
	Version  uint64
	Policies Policies
	// Fleet has the Redis nodes of efficiency mode. It is zero if there are none.
	Fleet Fleet
	// Lives names the run of each Redis server that votes, by the order of
	// Fleet.Addresses; empty for a node that does not vote. Calls under this version go to
	// these lives only: an address may lead to another living server.
	Lives []string
	// Ready is true if locks in efficiency mode may be granted. It is false while a
	// restored log catches up with the Redis nodes.
	Ready bool
	// User is the name that the service authenticated this client as, empty if it has
	// no users.
	User string
}

// TopologySource provides the newest topology that a process knows.
type TopologySource interface {
	// Topology returns the newest topology that is known.
	Topology() Topology
	// NextTopology returns the first known topology whose version is above after,
	// or the context's error.
	NextTopology(ctx context.Context, after uint64) (Topology, error)
}

// RoutedBackend is a Backend for locks of both modes. A session has one mode, and a client
// routes each request by the topology.
type RoutedBackend interface {
	Backend
	TopologySource
	// AwaitTopology waits for the first topology.
	AwaitTopology(ctx context.Context) error
	// RefreshTopology makes sure that the topology is up to date soon. A client calls it
	// when an answer shows that the known one is stale.
	RefreshTopology()
}

// ModeOf returns the mode of a lock; without a policy it is Correctness. The
// error is a *MigratingError while the lock changes its mode.
func (t Topology) ModeOf(name fencing.Resource) (Mode, error) {
	p := t.Policies.Match(name)
	if p.Next != AnyMode {
		return p.Mode, &MigratingError{Resource: name, From: p.Mode, To: p.Next}
	}
	if p.Mode == AnyMode {
		return Correctness, nil
	}
	return p.Mode, nil
}

// Route returns the mode that serves a request. All its locks must have that mode. If
// the caller expects a mode, it must be the same.
func (t Topology) Route(request *Request) (Mode, error) {
	route := AnyMode
	for _, name := range request.Resources {
		mode, err := t.ModeOf(name)
		switch {
		case err != nil:
			return AnyMode, err
		case request.Mode != AnyMode && mode != request.Mode:
			return AnyMode, &ModeError{Resource: name, Want: request.Mode, Have: mode}
		case route != AnyMode && mode != route:
			return AnyMode, fmt.Errorf("%w: a set must have one mode, but %q is %s and %q is %s; acquire them one after the "+
				"other",
				ErrInvalid, string(request.Resources[0]), route, string(name), mode)
		}
		route = mode
	}
	if route != Efficiency {
		return route, nil
	}
	switch {
	case request.Kind != Exclusive:
		return AnyMode, fmt.Errorf("%w: lock %q is in efficiency mode, which has exclusive leases and sets only; "+
			"move it to correctness mode for shared leases and permits", ErrUnsupported, string(request.Resources[0]))
	case t.Fleet.IsZero():
		return AnyMode, fmt.Errorf("%w: lock %q is in efficiency mode, and the service has no Redis nodes; "+
			"set them with 'leased redis fleet set', or change the lock's policy", ErrUnsupported, string(request.Resources[0]))
	case !t.Ready:
		return AnyMode, fmt.Errorf("%w: efficiency mode is not ready: a quorum of the Redis nodes has not reported yet; "+
			"see 'leased redis status'", ErrUnavailable)
	}
	return route, nil
}

// MigratingError reports that a lock is changing its mode and cannot be granted
// until the migration is complete. It matches ErrUnavailable: trying again is safe.
type MigratingError struct {
	Resource fencing.Resource
	From, To Mode
}

// Error names the lock and both modes.
func (e *MigratingError) Error() string {
	return fmt.Sprintf("lock %q is migrating from %s to %s mode; try again when the migration is complete, see "+
		"'leased policy show'",
		string(e.Resource), e.From, e.To)
}

// Is makes errors.Is match ErrUnavailable.
func (e *MigratingError) Is(target error) bool { return target == ErrUnavailable }

// Fleet is a set of independent Redis masters. All processes that share locks
// must name the same fleet.
type Fleet struct {
	// Namespace is the prefix of every key.
	Namespace string
	// Addresses are host:port, in any order.
	Addresses []string
	// MaxTTL is the longest TTL of a lease. A node that lost its state does not
	// vote before this time has passed.
	MaxTTL time.Duration
}

// IsZero reports whether there are no nodes.
func (f Fleet) IsZero() bool { return len(f.Addresses) == 0 }

// Fingerprint identifies the fleet by its members. A node votes for one fleet only, so
// two processes that are configured with different fleets cannot both be granted a
// lock.
func (f Fleet) Fingerprint() string {
	members := slices.Sorted(slices.Values(f.Addresses))
	sum := sha256.Sum256([]byte(strings.Join(members, "\n")))
	return hex.EncodeToString(sum[:8])
}

// Equal reports whether both fleets have the same members and settings.
func (f Fleet) Equal(other Fleet) bool {
	return f.Namespace == other.Namespace && f.MaxTTL == other.MaxTTL && len(f.Addresses) == len(other.Addresses) &&
		f.Fingerprint() == other.Fingerprint()
}

// Validate returns the first rule that a fleet breaks. A fleet without members is
// valid: there is no efficiency mode then.
func (f Fleet) Validate() error {
	if f.IsZero() {
		return nil
	}
	switch n := len(f.Addresses); {
	case n%2 == 0:
		return fmt.Errorf("%w: %d Redis nodes: use an odd number (%d tolerate no more failures than %d)", ErrInvalid, n, n,
			n-1)
	case f.Namespace == "" || strings.ContainsAny(f.Namespace, "{}:*?[]\\ \r\n"):
		return fmt.Errorf("%w: Redis namespace %q must not be empty or contain any of {}:*?[]\\ or white space", ErrInvalid,
			f.Namespace)
	case f.MaxTTL < MinTTL || f.MaxTTL > MaxTTL:
		return fmt.Errorf("%w: the longest TTL in efficiency mode (%v) must be from %v to %v", ErrInvalid, f.MaxTTL, MinTTL,
			MaxTTL)
	}
	seen := map[string]bool{}
	for _, address := range f.Addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("%w: Redis node %q must be host:port", ErrInvalid, address)
		}
		if seen[address] {
			return fmt.Errorf("%w: Redis node %s is listed twice; a node has one vote", ErrInvalid, address)
		}
		seen[address] = true
	}
	return nil
}
