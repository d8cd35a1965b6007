package main

import (
	"context"
	"strings"
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
	nodes  []*pb.RedisNode
}

func (m *fleetMember) ListPolicies(context.Context, *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	if m.leader != "" {
		return nil, wire.ToStatus(&wire.NotLeaderError{Leader: m.leader, Text: "not the leader"})
	}
	return &pb.ListPoliciesResponse{}, nil
}

func (m *fleetMember) GetFleet(context.Context, *pb.GetFleetRequest) (*pb.GetFleetResponse, error) {
	return &pb.GetFleetResponse{Fleet: m.fleet, Ready: true, Nodes: m.nodes}, nil
}

func (m *fleetMember) SetFleet(context.Context, *pb.SetFleetRequest) (*pb.SetFleetResponse, error) {
	return &pb.SetFleetResponse{}, nil
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

// fleet set counts the nodes that vote: a fleet is ready without a minority, such as one whose password is wrong.
func TestFleetSetCountsNodesThatVote(t *testing.T) {
	t.Parallel()
	denied := &pb.RedisNode{Address: "c:1", Error: "NOAUTH Authentication required."}
	for want, third := range map[string]*pb.RedisNode{
		"3 Redis nodes serve efficiency mode\n":                                              {Address: "c:1"},
		"2 of 3 Redis nodes serve efficiency mode; `leased redis status` shows the others\n": denied,
	} {
		addresses := []string{"a:1", "b:1", "c:1"}
		m := &fleetMember{fleet: &pb.RedisFleet{Addresses: addresses},
			nodes: []*pb.RedisNode{{Address: "a:1"}, {Address: "b:1"}, third}}
		root, out := newRoot(), &strings.Builder{}
		root.SetOut(out)
		root.SetArgs(append([]string{"redis", "fleet", "set", "--endpoint", m.serve(t)}, addresses...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Equal(t, want, out.String())
	}
}
