package server

import (
	"context"
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// GetFleet returns the Redis fleet and its nodes, as this member sees them. Only
// the leader knows what the fleet is waiting for.
func (a *admin) GetFleet(ctx context.Context, _ *pb.GetFleetRequest) (*pb.GetFleetResponse, error) {
	state := a.router.node.Efficiency()
	response := &pb.GetFleetResponse{Fleet: wire.FromFleet(state.Fleet), Version: state.Version, Floor: uint64(state.Floor),
		Ceiling: uint64(state.Ceiling), Ready: a.router.node.Topology().Ready, Next: wire.FromFleet(state.Next)}
	proposed := max(state.Ceiling, a.router.node.Status().LastToken)
	backend, err := a.router.redis.Backend()
	switch {
	case err == nil:
		response.Nodes = redisNodes(ctx, backend)
	case !state.Fleet.IsZero():
		response.Nodes = a.eachNode(ctx, state.Fleet)
	}
	for _, n := range response.Nodes {
		if n.Ceiling < uint64(fencing.MaxToken) {
			proposed = max(proposed, fencing.Token(n.Ceiling))
		}
		proposed = max(proposed, fencing.Token(n.Max))
	}
	response.ProposedFloor = uint64(min(proposed, fencing.MaxToken-recovery.Jump) + recovery.Jump)
	if step, leads := a.keeper.Progress(); leads {
		response.WaitingFor = step.Waiting
	}
	if response.WaitingFor == "" && response.Ready && !state.Fleet.IsZero() {
		response.WaitingFor = missingVotes(response.Nodes)
	}
	return response, nil
}

// redisNodes asks the nodes how they are.
func redisNodes(ctx context.Context, backend *redlockadapter.Backend) []*pb.RedisNode {
	var nodes []*pb.RedisNode
	for _, n := range backend.NodeStatuses(ctx) {
		node := &pb.RedisNode{Address: n.Addr, Empty: n.Err == nil && n.Report.Live == nil, Quarantine: wire.DurationText(n.Quarantine),
			Skew: wire.DurationText(n.Skew)}
		if n.Err != nil {
			node.Error = ownError(n.Addr, n.Err)
		}
		state := n.Report.Live
		if state == nil {
			state = n.Report.Former // what it knew before it lost its state
		}
		if state != nil {
			node.Version, node.Fleet = state.Version, state.Fleet
			node.Max, node.Floor, node.Ceiling = uint64(state.Max), uint64(state.Floor), uint64(state.Ceiling)
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// SetFleet changes the Redis fleet. The leader's keeper completes the change.
func (a *admin) SetFleet(ctx context.Context, r *pb.SetFleetRequest) (*pb.SetFleetResponse, error) {
	fleet, err := wire.ToFleet(r.Fleet)
	if err != nil {
		return nil, err
	}
	if !a.router.node.Leads() {
		return nil, a.notLeader()
	}
	if err := a.checkFleet(fleet, r.Force); err != nil {
		return nil, err
	}
	// The present fleet again takes back a change, and needs no check.
	if !r.Force && !fleet.IsZero() && !fleet.Equal(a.router.node.Topology().Fleet) {
		if err := a.tryFleet(ctx, fleet); err != nil {
			return nil, err
		}
	}
	version, err := a.router.node.SetFleet(ctx, fleet, r.Version, r.Now, r.Force)
	if err != nil {
		return nil, policyError(err)
	}
	a.keeper.Poke()
	return &pb.SetFleetResponse{Version: version}, nil
}

// checkFleet refuses a fleet that does not fit to the policies, and one without
// nodes unless that is forced.
func (a *admin) checkFleet(fleet engine.Fleet, force bool) error {
	for _, p := range a.router.node.Topology().Policies.All() {
		if p.Mode != engine.Efficiency && p.Next != engine.Efficiency {
			continue
		}
		switch {
		case fleet.IsZero():
			return fmt.Errorf("%w: the locks of %q are in efficiency mode and need Redis nodes; change their policy first", engine.ErrInvalid, p.Prefix)
		case p.Filled().TTL > fleet.MaxTTL:
			return fmt.Errorf("%w: maxTtl (%v) must be at least the ttl (%v) of the policy for %q", engine.ErrInvalid, fleet.MaxTTL, p.Filled().TTL, p.Prefix)
		}
	}
	if fleet.IsZero() && !force {
		return fmt.Errorf("%w: fleet.addresses is empty, which ends efficiency mode; name the Redis nodes, or set force to end it", engine.ErrInvalid)
	}
	return nil
}

// ProvideFloor lets a restored cluster serve the efficiency mode without the
// reports of a quorum of the Redis nodes.
func (a *admin) ProvideFloor(ctx context.Context, r *pb.ProvideFloorRequest) (*pb.ProvideFloorResponse, error) {
	floor := fencing.Token(r.Floor)
	if !floor.Valid() {
		return nil, fmt.Errorf("%w: floor (%d) must be from 1 to %d; GetFleet proposes one", engine.ErrInvalid, r.Floor, fencing.MaxToken)
	}
	if !a.router.node.Leads() {
		return nil, a.notLeader()
	}
	if err := a.keeper.ProvideFloor(ctx, floor); err != nil {
		return nil, policyError(err)
	}
	return &pb.ProvideFloorResponse{}, nil
}
