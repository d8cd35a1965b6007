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
// a later one when machine.FinishFleet is committed. Setting the current fleet cancels a change in
// progress. If version is not 0 and the topology has another version, SetFleet returns
// ErrVersion. With now the change does not wait for the leases of the old fleet, with
// force it does not need the old nodes.
func (n *Node) SetFleet(ctx context.Context, f engine.Fleet, version uint64, now, force bool) (uint64, error) {
	f.Addresses = slices.Sorted(slices.Values(f.Addresses)) // all processes number the nodes in this order
	result, err := n.change(ctx, "set fleet", &machine.SetFleet{Fleet: f, Version: version, Now: now, Force: force})
	return result.Version, err
}

// SetMemberAPI sets the API address of a member. An empty address removes it.
func (n *Node) SetMemberAPI(ctx context.Context, id, address string) error {
	_, err := n.change(ctx, "set the API address of member "+id, &machine.SetMemberAPI{ID: id, Address: address})
	return err
}

// MemberAPI returns the API address of a member as applied by this node, or "" if it is
// unknown. It does not wait for an entry that is being applied: many calls need the leader's address.
func (n *Node) MemberAPI(id string) string {
	if all := n.memberAPIs.Load(); all != nil {
		return (*all)[id]
	}
	return ""
}

// publishMemberAPIs sets what MemberAPI returns. The caller holds fsm.mu.
func (n *Node) publishMemberAPIs(m *machine.Machine) {
	all := m.MemberAPIs()
	n.memberAPIs.Store(&all)
}
