package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// SetPolicy adds or replaces a policy. A change of mode starts a migration, which
// the leader's Keeper completes.
func (s *Service) SetPolicy(ctx context.Context, r *pb.SetPolicyRequest) (*pb.SetPolicyResponse, error) {
	if r.Policy == nil {
		return nil, fmt.Errorf("%w: set policy: the request has no policy", engine.ErrInvalid)
	}
	p, err := wire.ToPolicy(r.Policy)
	if err != nil {
		return nil, err
	}
	if p.Next != engine.AnyMode {
		return nil, fmt.Errorf("%w: next (%s) is set by the service; set mode to start a migration", engine.ErrInvalid,
			p.Next)
	}
	if p.Mode == engine.Efficiency {
		if err := s.checkEfficiency(ctx, p); err != nil {
			return nil, err
		}
	}
	version, err := s.Router.Node.SetPolicy(ctx, p, r.Version, r.Now)
	if err != nil {
		return nil, policyError(err)
	}
	s.Keeper.Wake()
	return &pb.SetPolicyResponse{Version: version, Migration: s.migrationOf(p.Prefix)}, nil
}

// checkEfficiency returns an error for a policy that the Redis nodes cannot serve.
func (s *Service) checkEfficiency(ctx context.Context, p engine.Policy) error {
	if s.Router.Node.Topology().Fleet.IsZero() {
		if err := s.Router.RequireLeader(); err != nil {
			return err
		}
		if err := s.Keeper.Seed(ctx); err != nil {
			return err
		}
	}
	fleet, maxTTL := s.Router.Node.Topology().Fleet, s.maxTTL()
	switch {
	case fleet.IsZero():
		return fmt.Errorf("%w: set policy for %q: the service has no Redis nodes for efficiency mode; set them with "+
			"'leased redis fleet set'",
			engine.ErrUnsupported, p.Prefix)
	case p.Filled().TTL > maxTTL:
		return fmt.Errorf("%w: set policy for %q: ttl (%v) must be at most the longest TTL of the Redis fleet (%v) in "+
			"efficiency mode",
			engine.ErrInvalid, p.Prefix, p.Filled().TTL, maxTTL)
	}
	return nil
}

// maxTTL returns the longest TTL of the fleet, also after the change that is in progress.
func (s *Service) maxTTL() time.Duration {
	e := s.Router.Node.Efficiency()
	if e.NextVersion != 0 && !e.Next.IsZero() {
		return min(e.Fleet.MaxTTL, e.Next.MaxTTL)
	}
	return e.Fleet.MaxTTL
}

// policyError converts an error of the node to one of the API.
func policyError(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrVersion):
		return fmt.Errorf("%w: %w", wire.ErrOutdated, err)
	case errors.Is(err, raftstore.ErrMigrating):
		return invalid(err)
	}
	return err
}

// invalid returns an error with the text of err that matches engine.ErrInvalid and
// nothing else.
func invalid(err error) error { return fmt.Errorf("%w: %v", engine.ErrInvalid, err) }

// DeletePolicy removes a policy. Like SetPolicy it may start a migration.
func (s *Service) DeletePolicy(ctx context.Context, r *pb.DeletePolicyRequest) (*pb.DeletePolicyResponse, error) {
	version, err := s.Router.Node.DeletePolicy(ctx, r.Prefix, r.Version, r.Now)
	if err != nil {
		return nil, policyError(err)
	}
	s.Keeper.Wake()
	return &pb.DeletePolicyResponse{Version: version, Migration: s.migrationOf(r.Prefix)}, nil
}

// AbortMigration ends the migration of a prefix. Its locks keep their mode.
func (s *Service) AbortMigration(ctx context.Context, r *pb.AbortMigrationRequest) (*pb.AbortMigrationResponse, error) {
	version, err := s.Router.Node.AbortMigration(ctx, r.Prefix)
	if err != nil {
		return nil, policyError(err)
	}
	return &pb.AbortMigrationResponse{Version: version}, nil
}

// ListPolicies returns all policies and the running migrations.
func (s *Service) ListPolicies(ctx context.Context, _ *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	return s.ReadPolicies(ctx, raftstore.Linearizable)
}

// ReadPolicies returns the policies with the given consistency.
func (s *Service) ReadPolicies(ctx context.Context, c raftstore.Consistency) (*pb.ListPoliciesResponse, error) {
	policies, version, err := s.Router.Node.Policies(ctx, c)
	if err != nil {
		return nil, err
	}
	response := &pb.ListPoliciesResponse{Version: version}
	for _, p := range s.FilePolicies() {
		response.Member = s.Router.Node.ID()
		response.FilePolicies = append(response.FilePolicies, wire.FromPolicy(p))
	}
	for _, p := range policies.All() {
		response.Policies = append(response.Policies, wire.FromPolicy(p))
	}
	for _, m := range s.Router.Node.Efficiency().Migrations {
		response.Migrations = append(response.Migrations, s.migration(m))
	}
	return response, nil
}

// migrationOf returns the migration of a prefix, or nil if there is none.
func (s *Service) migrationOf(prefix string) *pb.Migration {
	for _, m := range s.Router.Node.Efficiency().Migrations {
		if m.Prefix == prefix {
			return s.migration(m)
		}
	}
	return nil
}

func (s *Service) migration(m machine.Migration) *pb.Migration {
	step, _ := s.Keeper.Progress()
	return &pb.Migration{Prefix: m.Prefix, From: wire.ModeText(m.From), To: wire.ModeText(m.To), Version: m.Version,
		Now:        m.Now,
		WaitingFor: step.Migrations[m.Prefix], Holders: int32(m.Holders)}
}

// WatchTopology sends the topology that this member has applied, and each later
// one, with the user of the caller.
func (s *Service) WatchTopology(_ *pb.WatchTopologyRequest, stream grpc.ServerStreamingServer[pb.Topology]) error {
	topology := s.Router.Node.Topology()
	for {
		topology.User = auth.UserName(stream.Context())
		if err := stream.Send(wire.FromTopology(topology)); err != nil {
			return err
		}
		var err error
		if topology, err = s.Router.Node.NextTopology(stream.Context(), topology.Version); err != nil {
			return err
		}
	}
}
