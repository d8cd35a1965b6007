package raftstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// ErrVersion says that the policies have changed since they were read. Read
// them again.
var ErrVersion = errors.New("policies have another version")

// Policies are the policies of all locks, and their version.
func (n *Node) Policies(ctx context.Context, c Consistency) (policies lease.Policies, version uint64, err error) {
	err = n.read(ctx, c, func(m *machine.Machine) { policies, version = m.Policies() })
	if err != nil {
		return lease.Policies{}, 0, fmt.Errorf("read policies: %w", err)
	}
	return policies, version, nil
}

// SetPolicy adds a policy, or replaces the one for its prefix. If version is
// not 0 the policies must have it. It returns the new version. A policy that
// would move a lock in use to another mode is refused with lease.ErrHeld.
func (n *Node) SetPolicy(ctx context.Context, p lease.Policy, version uint64) (uint64, error) {
	return n.changePolicy(ctx, p.Prefix, &machine.SetPolicy{Policy: p, Version: version})
}

// DeletePolicy removes the policy for a prefix; lease.ErrNotHeld if there is
// none. Version is as in SetPolicy.
func (n *Node) DeletePolicy(ctx context.Context, prefix string, version uint64) (uint64, error) {
	return n.changePolicy(ctx, prefix, &machine.DeletePolicy{Prefix: prefix, Version: version})
}

func (n *Node) changePolicy(ctx context.Context, prefix string, c machine.Command) (uint64, error) {
	result, _, err := n.propose(ctx, c)
	if err == nil {
		switch result.Code {
		case machine.Done:
			return result.Version, nil
		case machine.Outdated:
			err = fmt.Errorf("%w: it is %d now", ErrVersion, result.Version)
		case machine.Busy:
			err = fmt.Errorf("%w: %q is in use, and would get another mode", lease.ErrHeld, string(result.Resource))
		case machine.NotHeld:
			err = fmt.Errorf("%w: there is no such policy", lease.ErrNotHeld)
		default:
			err = fmt.Errorf("%w: the machine answered %s", lease.ErrUncertain, result.Code)
		}
	}
	return 0, fmt.Errorf("change policy for %q: %w", prefix, err)
}
