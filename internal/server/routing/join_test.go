package routing

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// fakeMember is the API of a member. It answers each call with err.
type fakeMember struct {
	pb.UnimplementedClusterServiceServer
	err   error
	calls chan string
}

func (m *fakeMember) answer(call string) error {
	m.calls <- call
	return wire.ToStatus(m.err)
}

func (m *fakeMember) AddLearner(context.Context, *pb.AddLearnerRequest) (*pb.AddLearnerResponse, error) {
	return &pb.AddLearnerResponse{Index: 7}, m.answer("add")
}

func (m *fakeMember) Promote(context.Context, *pb.PromoteRequest) (*pb.PromoteResponse, error) {
	return &pb.PromoteResponse{}, m.answer("promote")
}

// startFakeMember returns the address of a member whose calls fail with err, and the
// calls that it receives.
func startFakeMember(t *testing.T, err error) (address string, calls <-chan string) {
	t.Helper()
	m := &fakeMember{err: err, calls: make(chan string, 1000)}
	return startMember(t, m), m.calls
}

// startMember serves the API of a member and returns its address.
func startMember(t *testing.T, m pb.ClusterServiceServer) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	pb.RegisterClusterServiceServer(s, m)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return listener.Addr().String()
}

func newMembership(seeds ...string) *membership {
	router := &Router{Address: "127.0.0.1:1", PeerTLS: func() *tls.Config {
		return nil
	}, Secret: func() string { return "" }}
	return &membership{router: router, seeds: seeds, timeout: time.Minute}
}

// calls are the calls of a joining member.
var calls = map[string]func(ctx context.Context, m *membership) error{
	"add": func(ctx context.Context, m *membership) error {
		_, err := m.AddLearner(ctx, raftstore.Joiner{ID: "n2", Address: "127.0.0.1:2"})
		return err
	},
	"promote": func(ctx context.Context, m *membership) error { return m.Promote(ctx, "n2", 7) },
}

// A call whose context ends before a leader has answered fails.
func TestCallFailsWhenContextEnds(t *testing.T) {
	t.Parallel()
	for problem, failure := range map[string]error{
		"no leader":     &wire.NotLeaderError{Text: "no leader"},
		"unavailable":   engine.ErrUnavailable,
		"lost response": engine.ErrUncertain,
	} {
		for name, call := range calls {
			t.Run(name+", "+problem, func(t *testing.T) {
				t.Parallel()
				address, received := startFakeMember(t, failure)
				ctx, cancel := context.WithCancel(context.Background())
				go func() {
					<-received
					<-received // it retries until the context ends
					cancel()
				}()
				err := call(ctx, newMembership(address))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, address)
			})
		}
	}
}

// A leader that does not know the user of a joining member ends the call, although the followers know the user.
func TestCallOfAUserThatTheLeaderDoesNotKnow(t *testing.T) {
	t.Parallel()
	leader, _ := startFakeMember(t, wire.ErrUnauthenticated)
	one, _ := startFakeMember(t, &wire.NotLeaderError{Leader: leader})
	another, _ := startFakeMember(t, &wire.NotLeaderError{Leader: leader})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.ErrorContains(t, calls["add"](ctx, newMembership(one, another)), "secret-file")
}

// A call follows the address of the leader in a not-leader error.
func TestCallFollowsLeader(t *testing.T) {
	t.Parallel()
	leader, received := startFakeMember(t, nil)
	follower, _ := startFakeMember(t, &wire.NotLeaderError{Leader: leader})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, call := range calls {
		require.NoError(t, call(ctx, newMembership(follower)))
		require.Equal(t, name, testserver.Receive(t, received))
	}
}

// hungMember is the API of a member that does not answer.
type hungMember struct {
	pb.UnimplementedClusterServiceServer
}

func (hungMember) AddLearner(ctx context.Context, _ *pb.AddLearnerRequest) (*pb.AddLearnerResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hungMember) Promote(ctx context.Context, _ *pb.PromoteRequest) (*pb.PromoteResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A call leaves a leader that hangs: the others may have elected another one.
func TestCallLeavesAHungLeader(t *testing.T) {
	t.Parallel()
	hung := startMember(t, hungMember{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, call := range calls {
		leader, received := startFakeMember(t, nil) // a call that takes too long is repeated there
		m := newMembership(leader)
		m.leader, m.timeout = hung, 500*time.Millisecond
		require.NoError(t, call(ctx, m))
		require.Equal(t, name, testserver.Receive(t, received))
	}
}

// A member that is behind must catch up before it is promoted, and other errors end
// the call.
func TestCallReturnsErrors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	behind, _ := startFakeMember(t, wire.ErrBehind)
	require.ErrorIs(t, newMembership(behind).Promote(ctx, "n2", 1), raftstore.ErrBehind)
	invalid, _ := startFakeMember(t, engine.ErrInvalid)
	require.ErrorIs(t, newMembership(invalid).Promote(ctx, "n2", 1), engine.ErrInvalid)
	unauthenticated, _ := startFakeMember(t, wire.ErrUnauthenticated)
	require.ErrorIs(t, newMembership(unauthenticated).Promote(ctx, "n2", 1), wire.ErrUnauthenticated)
	knows, _ := startFakeMember(t, nil)
	require.NoError(t, newMembership(unauthenticated, knows).Promote(ctx, "n2", 1), "another member knows the user")
}
