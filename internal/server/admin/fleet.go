package admin

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// GetFleet returns the Redis fleet and the state of its nodes, as this member sees
// them. Only the leader knows what the fleet is waiting for.
func (s *Service) GetFleet(ctx context.Context, _ *pb.GetFleetRequest) (*pb.GetFleetResponse, error) {
	state := s.Router.Node.Efficiency()
	response := &pb.GetFleetResponse{Fleet: wire.FromFleet(state.Fleet), Version: state.Version,
		Floor:   uint64(state.Floor),
		Ceiling: uint64(state.Ceiling), Ready: s.Router.Node.Topology().Ready, Next: wire.FromFleet(state.Next)}
	if state.NextVersion != 0 && state.Next.IsZero() { // the fleet is being removed
		response.Next = &pb.RedisFleet{}
	}
	backend, err := s.Router.Redis.Backend()
	switch {
	case err == nil:
		response.Nodes = nodeStates(backend.NodeStatuses(ctx), s.Router.Node.Topology())
	case !state.Fleet.IsZero():
		response.Nodes = s.eachNodeState(ctx, state.Fleet)
	}
	response.ProposedFloor = uint64(proposeFloor(max(state.Ceiling, s.Router.Node.Status().LastToken), response.Nodes))
	if step, leads := s.Keeper.Progress(); leads {
		response.WaitingFor = step.Waiting
	}
	if response.WaitingFor == "" && response.Ready && !state.Fleet.IsZero() {
		response.WaitingFor = missingVotes(response.Nodes)
	}
	return response, nil
}

// proposeFloor returns a floor that is far above every token that the log or a Redis node
// knows of. The nodes that do not answer may have granted larger ones.
func proposeFloor(known fencing.Token, nodes []*pb.RedisNode) fencing.Token {
	for _, n := range nodes {
		if n.Ceiling < uint64(fencing.MaxToken) {
			known = max(known, fencing.Token(n.Ceiling))
		}
		known = max(known, fencing.Token(n.Max))
	}
	return min(known, fencing.MaxToken-recovery.Jump) + recovery.Jump
}

// SetFleet changes the Redis fleet. The leader's Keeper completes the change.
func (s *Service) SetFleet(ctx context.Context, r *pb.SetFleetRequest) (*pb.SetFleetResponse, error) {
	fleet, err := wire.ToFleet(r.Fleet)
	if err != nil {
		return nil, err
	}
	if err := s.Router.RequireLeader(); err != nil {
		return nil, err
	}
	if err := s.checkFleet(fleet, r.Force); err != nil {
		return nil, err
	}
	// Setting the current fleet cancels a change and needs no check.
	if !r.Force && !fleet.IsZero() && !fleet.Equal(s.Router.Node.Topology().Fleet) {
		if err := s.tryFleet(ctx, fleet); err != nil {
			return nil, err
		}
	}
	version, err := s.Router.Node.SetFleet(ctx, fleet, r.Version, r.Now, r.Force)
	if err != nil {
		return nil, policyError(err)
	}
	s.Keeper.Wake()
	return &pb.SetFleetResponse{Version: version}, nil
}

// checkFleet returns an error for a fleet that does not fit the policies, and for one without
// nodes unless the caller forces it. It can be forced while the last locks of efficiency mode
// migrate: that is the way out if the nodes that the migration waits for are gone for good.
func (s *Service) checkFleet(fleet engine.Fleet, force bool) error {
	for _, p := range s.Router.Node.Topology().Policies.All() {
		if p.Mode != engine.Efficiency && p.Next != engine.Efficiency {
			continue
		}
		switch {
		case fleet.IsZero() && p.Next != engine.Correctness:
			return fmt.Errorf("%w: the locks of %q need Redis nodes; set a policy with mode correctness first",
				engine.ErrInvalid, p.Prefix)
		case fleet.IsZero() && !force:
			return fmt.Errorf("%w: the locks of %q are migrating to correctness mode, which needs the Redis nodes; wait "+
				"until it is complete, or set force if the nodes are gone for good", engine.ErrInvalid, p.Prefix)
		case fleet.IsZero(): // the migration ends without them, with tokens above all that the log let them accept
		case p.Filled().TTL > fleet.MaxTTL:
			return fmt.Errorf("%w: maxTtl (%v) must be at least the ttl (%v) of the policy for %q", engine.ErrInvalid,
				fleet.MaxTTL, p.Filled().TTL, p.Prefix)
		}
	}
	if fleet.IsZero() && !force {
		return fmt.Errorf("%w: fleet.addresses is empty, which ends efficiency mode; name the Redis nodes, or set force "+
			"to end it", engine.ErrInvalid)
	}
	return nil
}

// tryFleet returns an error if no quorum of a fleet can be used, or if one of its servers
// must not be a node: it would be a missing vote. The current fleet then continues to serve.
func (s *Service) tryFleet(ctx context.Context, fleet engine.Fleet) error {
	backend, err := s.connect(ctx, fleet)
	if err == nil {
		for _, n := range backend.NodeStatuses(ctx) {
			if errors.Is(n.Err, redlockadapter.ErrNodeSetup) {
				err = errors.Join(err, n.Err)
			}
		}
		_ = backend.Close(ctx) // it holds no leases
	}
	if err == nil {
		return nil
	}
	refused := fmt.Errorf("the new Redis nodes cannot be used, so nothing was changed (force changes the fleet "+
		"anyway): %s", oneLine(err))
	if errors.Is(err, redlockadapter.ErrNodeSetup) {
		return invalid(refused)
	}
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, refused)
}

// ProvideFloor makes a restored cluster serve efficiency mode without the reports of
// a quorum of the Redis nodes.
func (s *Service) ProvideFloor(ctx context.Context, r *pb.ProvideFloorRequest) (*pb.ProvideFloorResponse, error) {
	floor := fencing.Token(r.Floor)
	if !floor.Valid() {
		return nil, fmt.Errorf("%w: floor (%d) must be from 1 to %d; GetFleet proposes one", engine.ErrInvalid, r.Floor,
			fencing.MaxToken)
	}
	if err := s.Router.RequireLeader(); err != nil {
		return nil, err
	}
	return &pb.ProvideFloorResponse{}, policyError(s.Keeper.ProvideFloor(ctx, floor, r.Force))
}
