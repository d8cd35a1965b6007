package raftstore

import (
	"context"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Efficiency returns the state of efficiency mode that this node has applied.
func (n *Node) Efficiency() (e machine.Efficiency) {
	n.fsm.Read(func(m *machine.Machine) { e = m.Efficiency() })
	return e
}

// Ceiling returns the largest token that the Redis nodes may accept, as far as this node knows.
func (n *Node) Ceiling() (token fencing.Token) {
	n.fsm.Read(func(m *machine.Machine) { token = m.Ceiling() })
	return token
}

// SetFleet sets the Redis nodes of efficiency mode. The first fleet takes effect at once,
// a later one when FinishFleet is called. Setting the current fleet cancels a change in
// progress. If version is not 0 and the topology has another version, SetFleet returns
// ErrVersion. With now the change does not wait for the leases of the old fleet, with
// force it does not need the old nodes.
func (n *Node) SetFleet(ctx context.Context, f engine.Fleet, version uint64, now, force bool) (uint64, error) {
	f.Addresses = slices.Sorted(slices.Values(f.Addresses)) // all processes number the nodes in this order
	result, err := n.change(ctx, "set fleet", &machine.SetFleet{Fleet: f, Version: version, Now: now, Force: force})
	return result.Version, err
}

// FinishFleet completes the change of fleet that this version started. A change that is
// no longer in progress counts as finished.
func (n *Node) FinishFleet(ctx context.Context, version uint64) error {
	_, err := n.change(ctx, "finish the change of fleet", &machine.FinishFleet{Version: version})
	return err
}

// NameLife names a life of a Redis node in the topology. version is the current version. It
// returns ErrVersion if the log has changed or the fleet has no such node, and ErrNotReady before Reconcile.
func (n *Node) NameLife(ctx context.Context, member, life string, version uint64) error {
	_, err := n.change(ctx, "name the life of "+member, &machine.NameLife{Member: member, Life: life, Version: version})
	return err
}

// FinishRecovery records that a life votes, so that its floor initialises no node again.
func (n *Node) FinishRecovery(ctx context.Context, member, life string) error {
	_, err := n.change(ctx, "finish the recovery of "+member, &machine.FinishRecovery{Member: member, Life: life})
	return err
}

// CloseSets records that the sets of lives of versions below this one cannot grant any
// more. granted is an upper bound of the tokens that were granted under these versions, or None
// if nobody knows one.
func (n *Node) CloseSets(ctx context.Context, version uint64, granted fencing.Token) error {
	_, err := n.change(ctx, "close older sets of Redis servers", &machine.CloseSets{Version: version, Granted: granted})
	return err
}

// RaiseCeiling raises the largest token that the Redis nodes may accept. It never lowers
// it.
func (n *Node) RaiseCeiling(ctx context.Context, to fencing.Token) error {
	_, err := n.change(ctx, "raise the ceiling of tokens", &machine.RaiseCeiling{To: to})
	return err
}

// Reconcile moves the log past the largest version and ceiling that the Redis nodes, or an
// operator, report, and names the lives that vote already. It returns ErrVersion if the log
// is ready, or has changed since the nodes reported.
func (n *Node) Reconcile(ctx context.Context, c machine.Reconcile) error {
	_, err := n.change(ctx, "reconcile with the Redis nodes", &c)
	return err
}

// FinishReconcile allows grants in efficiency mode. version is the version that a quorum of
// the Redis nodes has reached, at least the version of the Reconcile.
func (n *Node) FinishReconcile(ctx context.Context, version uint64) error {
	_, err := n.change(ctx, "finish reconciling with the Redis nodes", &machine.FinishReconcile{Version: version})
	return err
}

// SetMemberAPI sets the API address of a member. An empty address removes it.
func (n *Node) SetMemberAPI(ctx context.Context, id, address string) error {
	_, err := n.change(ctx, "set the API address of member "+id, &machine.SetMemberAPI{ID: id, Address: address})
	return err
}

// MemberAPI returns the API address of a member as applied by this node, or "" if it is
// unknown.
func (n *Node) MemberAPI(id string) (address string) {
	n.fsm.Read(func(m *machine.Machine) { address = m.MemberAPI(id) })
	return address
}
