package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/redlockadapter"
)

// fleetMember answers with the fleet that it knows. It leads if leader is empty.
type fleetMember struct {
	pb.UnimplementedPolicyServiceServer
	pb.UnimplementedRedisServiceServer
	leader string
	fleet  *pb.RedisFleet
}

func (m *fleetMember) ListPolicies(context.Context, *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	if m.leader != "" {
		return nil, wire.ToStatus(&wire.NotLeaderError{Leader: m.leader, Text: "not the leader"})
	}
	return &pb.ListPoliciesResponse{}, nil
}

func (m *fleetMember) GetFleet(context.Context, *pb.GetFleetRequest) (*pb.GetFleetResponse, error) {
	return &pb.GetFleetResponse{Fleet: m.fleet}, nil
}

func (m *fleetMember) serve(t *testing.T) string {
	t.Helper()
	return serveMember(t, func(s *grpc.Server) {
		pb.RegisterPolicyServiceServer(s, m)
		pb.RegisterRedisServiceServer(s, m)
	})
}

// fleet set keeps the settings that it is not given. It gets them from the leader, because a follower may not have
// applied its log yet.
func TestFleetSetKeepsWhatTheLeaderKnows(t *testing.T) {
	t.Parallel()
	leader := &fleetMember{fleet: &pb.RedisFleet{Addresses: []string{"redis:6379"}, Namespace: "orders", MaxTtl: "90s"}}
	follower := &fleetMember{leader: leader.serve(t)}
	a := &access{endpoint: follower.serve(t)}
	for given, want := range map[*pb.RedisFleet]*pb.RedisFleet{
		{}:                   {Namespace: "orders", MaxTtl: "90s"},
		{Namespace: "stock"}: {Namespace: "stock", MaxTtl: "90s"},
		{MaxTtl: "2m"}:       {Namespace: "orders", MaxTtl: "2m"},
	} {
		require.NoError(t, a.fillFleet(t.Context(), given))
		require.Equal(t, want.Namespace, given.Namespace)
		require.Equal(t, want.MaxTtl, given.MaxTtl)
	}
	got, err := a.fleet(t.Context())
	require.NoError(t, err)
	require.Equal(t, leader.fleet.Addresses, got.Fleet.Addresses)

	leader.fleet = nil
	first := &pb.RedisFleet{}
	require.NoError(t, a.fillFleet(t.Context(), first))
	require.Equal(t, redlockadapter.DefaultNamespace, first.Namespace)
	require.Equal(t, redlockadapter.DefaultMaxTTL.String(), first.MaxTtl)
}
