package member

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
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

// A member whose Raft address has changed announces it only to the cluster that it belongs to.
func TestMovedMemberKnowsItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, transport := raft.NewInmemTransport("new")
		node, err := raftstore.Open(raftstore.Config{ID: "a", Transport: transport, Storage: raftstore.MemoryStorage(),
			Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer node.Close()
		m := &Member{node: node, settings: &settings.Settings{ID: "a"}}
		known := []raftstore.Member{{ID: "a", Address: "old", Voter: true}, {ID: "b", Address: "b", Voter: true}}
		moved := func(more map[string]*pb.StatusResponse, b, a string) []string {
			answers := map[string]*pb.StatusResponse{"h:7420": {Id: "b", RaftAddress: b,
				Members: []*pb.Member{{Id: "a", RaftAddress: a}, {Id: "b", RaftAddress: b}}}}
			maps.Copy(answers, more)
			return m.moved(known, answers)
		}
		require.Equal(t, []string{"h:7420"}, moved(nil, "b", "old"))
		require.Empty(t, moved(nil, "b", "new"), "the leader reaches it")
		require.Empty(t, moved(nil, "elsewhere", "old"), "perhaps another cluster")
		self := map[string]*pb.StatusResponse{"self:7420": {Id: "a", RaftAddress: "new"}}
		require.NotEmpty(t, moved(self, "b", "old"))
		self["self:7420"].RaftAddress = "old"
		require.Empty(t, moved(self, "b", "old"), "one of the two is a copy")
	})
}

// The leader dials each member at its address in the Raft configuration, so a member that restarts at another address
// has to announce it.
func TestMemberRestartsAtAnotherRaftAddress(t *testing.T) {
	t.Parallel()
	one, _ := startMember(t)
	join := []string{"--bootstrap-expect=0", "--join=" + one.Address()}
	startMember(t, append(join, "--id=two")...)
	s := newSettings(t, append(join, "--id=three")...)
	three, err := Start(testContext(t), s, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		members := one.node.Members()
		return len(members) == 3 && !slices.ContainsFunc(members, func(o raftstore.Member) bool { return !o.Voter })
	}, testTimeout, 10*time.Millisecond)
	require.NoError(t, three.Stop())

	three, err = Start(testContext(t), s, "test", slog.New(slog.DiscardHandler)) // at a free port
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, three.Stop()) })
	require.Eventually(t, func() bool {
		leader, _ := three.node.Leader()
		return leader != ""
	}, testTimeout, 10*time.Millisecond)
	require.Contains(t, one.node.Members(), raftstore.Member{ID: "three", Address: three.node.Address(), Voter: true})
}

// A single member that has another address after a restart, such as one that other machines can reach, is known there
// when others join it.
func TestLeaderRestartsAtAnotherRaftAddress(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	address := ""
	for range 2 {
		m, err := Start(testContext(t), s, "test", slog.New(slog.DiscardHandler)) // at a free port
		require.NoError(t, err)
		require.NotEqual(t, address, m.node.Address())
		address = m.node.Address()
		require.Eventually(t, func() bool {
			return slices.Equal(m.node.Members(), []raftstore.Member{{ID: "one", Address: address, Voter: true}})
		}, testTimeout, 10*time.Millisecond)
		require.NoError(t, m.Stop())
	}
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
