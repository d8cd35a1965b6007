package member

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// A new cluster must not count one member twice.
func TestFoundersAreDistinct(t *testing.T) {
	members, err := founders(map[string]*pb.StatusResponse{
		"h1:7420": {Id: "a", RaftAddress: "h1:7421"}, "h2:7420": {Id: "b", RaftAddress: "h2:7421"}})
	require.NoError(t, err)
	require.Len(t, members, 2)

	_, err = founders(map[string]*pb.StatusResponse{
		"h1:7420": {Id: "a", RaftAddress: "h1:7421"}, "h2:7420": {Id: "a", RaftAddress: "h2:7421"}})
	require.ErrorIs(t, err, ErrFormation)
	require.ErrorContains(t, err, `have the same id "a"`)

	_, err = founders(map[string]*pb.StatusResponse{
		"h1:7420": {Id: "a", RaftAddress: "h:7421"}, "h2:7420": {Id: "b", RaftAddress: "h:7421"}})
	require.ErrorIs(t, err, ErrFormation)
	require.ErrorContains(t, err, "have the same raft-advertise address h:7421")
}

// A member that was stopped before it caught up may find itself the only member of
// its configuration. It must join again, and must not start a cluster.
func TestMemberThatCatchesUpJoinsAgain(t *testing.T) {
	for _, configured := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			storage := raftstore.MemoryStorage()
			require.NoError(t, storage.Stable.SetUint64([]byte("CatchUp"), 1<<40))
			if configured {
				entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
					Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}})}
				require.NoError(t, storage.Log.StoreLog(entry))
			}
			_, transport := raft.NewInmemTransport("a")
			node, err := raftstore.Open(raftstore.Config{ID: "a", Transport: transport, Storage: storage,
				Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer node.Close()
			m := &Member{node: node, settings: &settings.Settings{ID: "a", BootstrapExpect: 1}, peers: &peers{}}
			done, missing, err := m.formOnce(t.Context())
			require.NoError(t, err)
			require.False(t, done)
			require.Contains(t, missing, "a member of the cluster")
			require.Equal(t, configured, len(node.Members()) == 1)
		})
	}
}

// Only a member with a newer log can tell that this one was removed: an older log may not know it yet.
func TestRemovedWhileStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := raftstore.MemoryStorage()
		entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
			Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"},
				{ID: "b", Address: "b"}}})}
		require.NoError(t, storage.Log.StoreLog(entry))
		_, transport := raft.NewInmemTransport("a")
		node, err := raftstore.Open(raftstore.Config{ID: "a", Transport: transport, Storage: storage,
			Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer node.Close()
		m := &Member{node: node, settings: &settings.Settings{ID: "a", Data: "d"}}
		check := func(status *pb.StatusResponse) error {
			return m.checkRemoved(map[string]*pb.StatusResponse{"h:7420": status})
		}
		others, all := []*pb.Member{{Id: "b"}}, []*pb.Member{{Id: "a"}, {Id: "b"}}
		require.ErrorIs(t, check(&pb.StatusResponse{AppliedIndex: 1, Members: others}), ErrIdentity)
		require.NoError(t, check(&pb.StatusResponse{AppliedIndex: 0, Members: others}), "it may have missed that a joined")
		require.NoError(t, check(&pb.StatusResponse{AppliedIndex: 2, Members: all}))
		require.NoError(t, check(&pb.StatusResponse{AppliedIndex: 2}), "it has not joined yet")
	})
}

// peer is the API of a member. status is nil for one that is starting.
type peer struct {
	pb.UnimplementedClusterServiceServer
	status *pb.StatusResponse
	asked  chan struct{} // has room for one
}

func (p *peer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	if p.status == nil {
		return nil, wire.ToStatus(engine.ErrUnavailable)
	}
	return p.status, nil
}

func (p *peer) AddLearner(context.Context, *pb.AddLearnerRequest) (*pb.AddLearnerResponse, error) {
	select {
	case p.asked <- struct{}{}:
	default:
	}
	return nil, wire.ToStatus(engine.ErrUnavailable)
}

func startPeer(t *testing.T, status *pb.StatusResponse) (address string, asked <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &peer{status: status, asked: make(chan struct{}, 1)}
	s := grpc.NewServer()
	pb.RegisterClusterServiceServer(s, p)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return listener.Addr().String(), p.asked
}

// A member joins through another peer if the one that answered first cannot serve any more.
func TestJoinThroughAnotherPeer(t *testing.T) {
	t.Parallel()
	first, asked := startPeer(t, &pb.StatusResponse{Id: "a", Members: []*pb.Member{{Id: "a"}}})
	other, askedOther := startPeer(t, nil)
	startMember(t, "--bootstrap-expect=0", "--join="+first+","+other)
	for _, received := range []<-chan struct{}{asked, askedOther} {
		select {
		case <-received:
		case <-time.After(30 * time.Second):
			require.FailNow(t, "a peer was not asked")
		}
	}
}
