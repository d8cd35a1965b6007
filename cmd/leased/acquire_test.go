package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

// deposedMember loses the leadership during the first acquire, and serves the second one.
type deposedMember struct {
	pb.UnimplementedLeaseServiceServer
	calls chan *pb.AcquireRequest
}

func (m *deposedMember) Session(stream pb.LeaseService_SessionServer) error {
	<-stream.Context().Done()
	return nil
}

func (m *deposedMember) Acquire(_ context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	m.calls <- r
	if len(m.calls) == 1 {
		return nil, wire.ToStatus(lease.ErrUncertain)
	}
	return &pb.AcquireResponse{Resource: r.Resource, Token: 7}, nil
}

// A command that waits for a lock repeats its attempt after a change of the leader: another attempt would wait behind
// the first one. Two commands are two attempts.
func TestWaitingCommandRepeatsItsAttempt(t *testing.T) {
	t.Parallel()
	attempts := map[string]bool{}
	for range 2 {
		m := &deposedMember{calls: make(chan *pb.AcquireRequest, 2)}
		a := &access{endpoint: serveMember(t, func(s *grpc.Server) { pb.RegisterLeaseServiceServer(s, m) })}
		got, err := a.acquire(t.Context(), &pb.AcquireRequest{Resource: "job/1", Wait: "1m"})
		require.NoError(t, err)
		require.EqualValues(t, 7, got.Token)
		first, second := <-m.calls, <-m.calls
		require.GreaterOrEqual(t, len(first.Attempt), 16)
		require.Equal(t, first.Attempt, second.Attempt)
		attempts[first.Attempt] = true
	}
	require.Len(t, attempts, 2)
}
