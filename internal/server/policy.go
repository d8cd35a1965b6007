package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// SetPolicy adds or replaces a policy. A change of mode begins a move, which the
// leader's keeper completes.
func (a *admin) SetPolicy(ctx context.Context, r *pb.SetPolicyRequest) (*pb.SetPolicyResponse, error) {
	if r.Policy == nil {
		return nil, fmt.Errorf("%w: there is no policy", engine.ErrInvalid)
	}
	p, err := wire.ToPolicy(r.Policy)
	if err != nil {
		return nil, err
	}
	if p.Next != engine.AnyMode {
		return nil, fmt.Errorf("%w: next (%s) is set by the service; set mode to begin a move", engine.ErrInvalid, p.Next)
	}
	if p.Mode == engine.Efficiency {
		if err := a.checkEfficiency(ctx, p); err != nil {
			return nil, err
		}
	}
	version, err := a.router.node.SetPolicy(ctx, p, r.Version, r.Now)
	if err != nil {
		return nil, policyError(err)
	}
	a.keeper.Poke()
	return &pb.SetPolicyResponse{Version: version, Migration: a.moveOf(p.Prefix)}, nil
}

// checkEfficiency refuses a policy that the Redis nodes cannot serve.
func (a *admin) checkEfficiency(ctx context.Context, p engine.Policy) error {
	if a.router.node.Topology().Fleet.IsZero() {
		if !a.router.node.Leads() {
			return a.notLeader()
		}
		if err := a.keeper.Seed(ctx); err != nil {
			return err
		}
	}
	fleet := a.router.node.Topology().Fleet
	switch {
	case fleet.IsZero():
		return fmt.Errorf("%w: set policy for %q: the service has no Redis nodes for efficiency mode; set them with 'leased redis fleet set'",
			engine.ErrUnsupported, p.Prefix)
	case p.Filled().TTL > fleet.MaxTTL:
		return fmt.Errorf("%w: set policy for %q: ttl (%v) must be at most the longest of the Redis fleet (%v) in efficiency mode",
			engine.ErrInvalid, p.Prefix, p.Filled().TTL, fleet.MaxTTL)
	}
	return nil
}

// policyError returns an error of the node as one of the API.
func policyError(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrVersion):
		return fmt.Errorf("%w: %w", wire.ErrOutdated, err)
	case errors.Is(err, raftstore.ErrMoving), errors.Is(err, engine.ErrNotHeld):
		return &invalidError{err}
	}
	return err
}

// invalidError is an error that matches engine.ErrInvalid and nothing else.
type invalidError struct{ err error }

// Error returns the text.
func (e *invalidError) Error() string { return e.err.Error() }

// Is makes errors.Is match engine.ErrInvalid.
func (e *invalidError) Is(target error) bool { return target == engine.ErrInvalid }

// DeletePolicy removes a policy.
func (a *admin) DeletePolicy(ctx context.Context, r *pb.DeletePolicyRequest) (*pb.DeletePolicyResponse, error) {
	version, err := a.router.node.DeletePolicy(ctx, r.Prefix, r.Version, r.Now)
	if err != nil {
		return nil, policyError(err)
	}
	a.keeper.Poke()
	return &pb.DeletePolicyResponse{Version: version, Migration: a.moveOf(r.Prefix)}, nil
}

// AbortMove ends the move of a prefix.
func (a *admin) AbortMigration(ctx context.Context, r *pb.AbortMigrationRequest) (*pb.AbortMigrationResponse, error) {
	version, err := a.router.node.AbortMove(ctx, r.Prefix)
	if err != nil {
		return nil, policyError(err)
	}
	a.config.Logger.Info("move of locks aborted", "prefix", r.Prefix, "version", version)
	return &pb.AbortMigrationResponse{Version: version}, nil
}

// ListPolicies returns all policies, and the moves that are under way.
func (a *admin) ListPolicies(ctx context.Context, _ *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	policies, version, err := a.router.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return nil, err
	}
	response := &pb.ListPoliciesResponse{Version: version}
	for _, p := range policies.All() {
		response.Policies = append(response.Policies, wire.FromPolicy(p))
	}
	for _, m := range a.router.node.Efficiency().Moves {
		response.Migrations = append(response.Migrations, a.moveMessage(m))
	}
	return response, nil
}

// moveOf returns the move of a prefix, nil if there is none.
func (a *admin) moveOf(prefix string) *pb.Migration {
	for _, m := range a.router.node.Efficiency().Moves {
		if m.Prefix == prefix {
			return a.moveMessage(m)
		}
	}
	return nil
}

func (a *admin) moveMessage(m machine.Move) *pb.Migration {
	step, _ := a.keeper.Progress()
	return &pb.Migration{Prefix: m.Prefix, From: wire.ModeText(m.From), To: wire.ModeText(m.To), Version: m.Version, Now: m.Now,
		WaitingFor: step.Moves[m.Prefix], Holders: int32(m.Holders)}
}

// WatchTopology sends the topology that this member has applied, and each later
// one.
func (a *admin) WatchTopology(_ *pb.WatchTopologyRequest, server grpc.ServerStreamingServer[pb.Topology]) error {
	return a.watchTopology(server.Context(), server.Send)
}

// watchTopology is WatchTopology without gRPC.
func (a *admin) watchTopology(ctx context.Context, send func(*pb.Topology) error) error {
	topology := a.router.node.Topology()
	for {
		if err := send(wire.FromTopology(topology)); err != nil {
			return err
		}
		var err error
		if topology, err = a.router.node.NextTopology(ctx, topology.Version); err != nil {
			return err
		}
	}
}
