package raftstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Efficiency returns what the log knows of the efficiency mode, as this node has
// applied it.
func (n *Node) Efficiency() (e machine.Efficiency) {
	n.fsm.Read(func(m *machine.Machine) { e = m.Efficiency() })
	return e
}

// SetFleet sets the Redis nodes of the efficiency mode. The first fleet takes
// effect at once; another one when FinishFleet is called. The present fleet ends
// a change that was begun. If version is not 0 the topology must have it, else
// ErrVersion. now does not wait for the leases of the old fleet, force does not
// need its nodes.
func (n *Node) SetFleet(ctx context.Context, f engine.Fleet, version uint64, now, force bool) (uint64, error) {
	f.Addresses = slices.Sorted(slices.Values(f.Addresses)) // everyone numbers the nodes alike
	v, err := n.change(ctx, &machine.SetFleet{Fleet: f, Version: version, Now: now, Force: force})
	if err != nil {
		return 0, fmt.Errorf("set fleet: %w", err)
	}
	return v, nil
}

// FinishFleet completes the change of fleet that began with this version. A
// change that is not under way any more counts as finished.
func (n *Node) FinishFleet(ctx context.Context, version uint64) error {
	if _, err := n.change(ctx, &machine.FinishFleet{Version: version}); err != nil {
		return fmt.Errorf("finish the change of fleet: %w", err)
	}
	return nil
}

// AssignRange assigns a fresh range of tokens to a member of the fleet that has
// no state. join is the nonce that was put on it. It returns ErrVersion if the
// fleet has no such member, and ErrNotReady before Reconcile.
func (n *Node) AssignRange(ctx context.Context, member, join string) (machine.Range, error) {
	result, _, err := n.propose(ctx, &machine.AssignRange{Member: member, Join: join})
	if err == nil {
		err = changeError(result)
	}
	if err != nil {
		return machine.Range{}, fmt.Errorf("assign a range of tokens to %s: %w", member, err)
	}
	return *result.Range, nil
}

// RaiseCeiling raises the largest token that the Redis nodes may accept. A
// ceiling that is not above the present one changes nothing.
func (n *Node) RaiseCeiling(ctx context.Context, to fencing.Token) error {
	if _, err := n.change(ctx, &machine.RaiseCeiling{To: to}); err != nil {
		return fmt.Errorf("raise the ceiling of tokens: %w", err)
	}
	return nil
}

// Reconcile moves the log past the largest version and ceiling that the Redis
// nodes, or an operator, report. It returns ErrVersion if the log is ready.
func (n *Node) Reconcile(ctx context.Context, version uint64, ceiling fencing.Token) error {
	if _, err := n.change(ctx, &machine.Reconcile{Version: version, Ceiling: ceiling}); err != nil {
		return fmt.Errorf("reconcile with the Redis nodes: %w", err)
	}
	return nil
}

// FinishReconcile lets efficiency locks be granted. version is what a quorum of
// the Redis nodes has reached, at least that of the Reconcile.
func (n *Node) FinishReconcile(ctx context.Context, version uint64) error {
	if _, err := n.change(ctx, &machine.FinishReconcile{Version: version}); err != nil {
		return fmt.Errorf("finish to reconcile with the Redis nodes: %w", err)
	}
	return nil
}

// SetMemberAPI records where the API of a member is reached; an empty address
// removes the record.
func (n *Node) SetMemberAPI(ctx context.Context, id, address string) error {
	if _, err := n.change(ctx, &machine.SetMemberAPI{ID: id, Address: address}); err != nil {
		return fmt.Errorf("set the API address of member %s: %w", id, err)
	}
	return nil
}

// MemberAPI returns where the API of a member is reached, as this node has
// applied it; "" if that is not known.
func (n *Node) MemberAPI(id string) (address string) {
	n.fsm.Read(func(m *machine.Machine) { address = m.MemberAPI(id) })
	return address
}
