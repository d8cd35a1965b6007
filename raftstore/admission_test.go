package raftstore

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/transport"
)

// restart starts a node of the cluster again, with its configuration and folder.
func (c *cluster) restart(i int) *Node {
	c.t.Helper()
	// It buffers requests that a stopped node must not receive.
	if old, ok := c.configs[i].Transport.(*raft.InmemTransport); ok {
		_, transport := raft.NewInmemTransportWithTimeout(old.LocalAddr(), 100*time.Millisecond)
		c.inmem[i], c.configs[i].Transport = transport, transport
		c.heal()
	}
	c.nodes[i] = openNode(c.t, c.configs[i])
	return c.nodes[i]
}

// emptiedVoter starts a cluster of three nodes and acquires a lock that only two of
// them have in their log. One of the two is then emptied, the other is stopped. The
// emptied node and the third one could elect a leader without that entry.
func emptiedVoter(t *testing.T, kind logstore.Kind) (c *cluster, knows, behind, emptied int, s engine.Session,
	grant engine.Grant) {
	c = startDisk(t, 3, kind)
	s = openSession(t, c.backend(), time.Hour)
	c.agree()
	knows = slices.Index(c.nodes, c.leader())
	behind, emptied = (knows+1)%3, (knows+2)%3
	require.NoError(t, c.nodes[behind].Close())
	grant, err := s.Acquire(testContext(t), lockRequest(1, "a"))
	require.NoError(t, err)
	require.NoError(t, c.nodes[knows].Close())
	require.NoError(t, c.nodes[emptied].Close())
	require.NoError(t, os.RemoveAll(c.configs[emptied].Dir))
	c.restart(behind)
	c.restart(emptied)
	return c, knows, behind, emptied, s, grant
}

func TestEmptiedVoterDoesNotVote(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c, knows, behind, emptied, s, first := emptiedVoter(t, kind)
		ctx := testContext(t)
		eventually(t, "a vote request reaches the emptied node", func() bool {
			return c.nodes[emptied].admission.refused.Load() >= 3 || c.nodes[behind].Leads() || c.nodes[emptied].Leads()
		})
		if c.nodes[behind].Leads() || c.nodes[emptied].Leads() { // show the consequence
			s, err := c.backend().Open(ctx, s.(*Session).config)
			require.NoError(t, err)
			grant, err := s.Acquire(ctx, lockRequest(2, "a"))
			require.Failf(t, "the elected leader lacks a committed entry", "token %d, then %d (%v)", first.Token, grant.Token,
				err)
		}

		c.restart(knows)
		leader := c.leader()
		require.Equal(t, c.nodes[knows].ID(), leader.ID(), "only this node has the entry")
		again, err := openSameSession(t, c, s).Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.Equal(t, first.Token, again.Token)

		id := c.nodes[emptied].ID()
		err = c.nodes[emptied].Join(ctx, leader)
		require.ErrorIs(t, err, ErrStateLost)
		require.ErrorContains(t, err, "leased cluster remove "+id)
		require.NoError(t, leader.Remove(ctx, id))
		require.NoError(t, c.nodes[emptied].Join(ctx, leader))
		_, voter := leader.voter(id)
		require.True(t, voter)
		c.agree()
	})
}

// slowAnswers is a leader whose answers take longer than its entries.
type slowAnswers struct{ *Node }

func (l slowAnswers) AddLearner(ctx context.Context, j Joiner) (uint64, error) {
	index, err := l.Node.AddLearner(ctx, j)
	<-time.After(500 * time.Millisecond)
	return index, err
}

// A node that joins refuses no entries of its leader, which may arrive before the node knows
// that it is a member: the leader would log that the node has lost its votes.
func TestJoiningNodeRefusesNoEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		joiner := c.add("n1")
		require.NoError(t, joiner.Join(testContext(t), slowAnswers{c.leader()}))
		require.Zero(t, joiner.admission.refused.Load())
		c.agree()
	})
}

// A node that keeps its folder can restart at another address and join again.
func TestVoterWithStateKeepsItsVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 3, DefaultLogStore)
		ctx := testContext(t)
		s := openSession(t, c.backend(), time.Hour)
		leader := slices.Index(c.nodes, c.leader())
		moved, closed := (leader+1)%3, (leader+2)%3
		require.NoError(t, c.nodes[moved].Close())
		_, c.configs[moved].Transport = raft.NewInmemTransport("elsewhere")
		c.restart(moved)
		require.NoError(t, c.nodes[moved].Join(ctx, c.leader()))
		require.NoError(t, c.nodes[closed].Close())
		_, err := openSameSession(t, c, s).Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err, "its vote counts at the new address")
	})
}

// An emptied voter may have voted for a later leader. An entry that it acknowledges
// could be overwritten by that leader.
func TestEmptiedVoterAcknowledgesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		s := openSession(t, c.backend(), time.Hour)
		leader := c.leader()
		others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return c.nodes[i] == leader })
		require.NoError(t, c.nodes[others[0]].Close())
		require.NoError(t, c.nodes[others[1]].Close())
		c.configs[others[1]].Storage = MemoryStorage()
		emptied := c.restart(others[1])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.Error(t, err, "one node alone has it")
		require.Zero(t, emptied.Status().LastIndex)
		require.Positive(t, emptied.admission.refused.Load())
	})
}

// A node that bootstrapped a new cluster in an emptied folder ignores the old cluster,
// which still has it as a member.
func TestBootstrappedNodeDoesNotFollowItsOldCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		leader := c.leader()
		i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n != leader })
		require.NoError(t, c.nodes[i].Close())
		c.configs[i].Storage = MemoryStorage()
		restarted := c.restart(i)
		require.NoError(t, restarted.Bootstrap())
		pass(time.Minute)
		require.Positive(t, restarted.admission.refused.Load())
		require.Len(t, restarted.Members(), 1)
		require.True(t, restarted.Leads())
		require.NoError(t, restarted.Close())
		again := c.restart(i)
		pass(time.Minute)
		require.Positive(t, again.admission.refused.Load(), "it refuses after a restart too")
		require.Len(t, again.Members(), 1)
	})
}

func TestDataFolderWithoutVotesIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 1, logstore.WAL)
		_, err := c.nodes[0].SaveSnapshot(testContext(t), io.Discard)
		require.NoError(t, err)
		require.NoError(t, c.nodes[0].Close())
		require.NoError(t, os.RemoveAll(filepath.Join(c.configs[0].Dir, "wal")))
		_, err = Open(c.configs[0])
		require.ErrorIs(t, err, ErrStateLost)
		require.ErrorContains(t, err, "join again")
	})
}

func TestEmptiedProcessDoesNotVote(t *testing.T) {
	t.Parallel()
	ps := startProcesses(t, 3, DefaultLogStore, slowHeartbeat)
	id := engine.NewSessionID()
	_, err := ps.ask(call{Op: "open", Session: id})
	require.NoError(t, err)
	ps.agree()
	leader := ps.leader()
	rest := slices.DeleteFunc(slices.Clone(ps.all), func(p *process) bool { return p == leader })
	behind, emptied := rest[0], rest[1]
	behind.kill()
	first, err := leader.call(call{Op: "acquire", Session: id, Nonce: 1, Resource: "a"})
	require.NoError(t, err)
	leader.kill()
	emptied.kill()
	require.NoError(t, os.RemoveAll(emptied.spec.Dir))
	require.NoError(t, os.MkdirAll(emptied.spec.Dir, 0o700))
	emptied.start()
	behind.start()
	_, err = emptied.call(call{Op: "join", Control: behind.control})
	require.Error(t, err, "without a leader it cannot join")
	eventually(t, "a vote request reaches the emptied node", func() bool {
		a, err := emptied.call(call{Op: "status"})
		require.NoError(t, err)
		require.Zero(t, a.Status.LastIndex)
		b, err := behind.call(call{Op: "status"})
		require.NoError(t, err)
		require.NotEqual(t, "leader", b.Status.State, "it was elected by the emptied node")
		said, err := os.ReadFile(filepath.Join(emptied.spec.Dir, "stderr"))
		require.NoError(t, err)
		return len(said) > 0 // it logs the refused vote request
	})

	leader.start()
	again, err := ps.ask(call{Op: "acquire", Session: id, Nonce: 1, Resource: "a"})
	require.NoError(t, err)
	require.Equal(t, first.Token, again.Token)
	_, err = emptied.call(call{Op: "join", Control: ps.leader().control})
	require.ErrorContains(t, err, "leased cluster remove "+emptied.spec.ID)
	_, err = ps.leader().call(call{Op: "remove", ID: emptied.spec.ID})
	require.NoError(t, err)
	ps.join(emptied)
	ps.agree()
}

// A node with an empty data folder answers no request on its real port.
func TestEmptyNodeAdmitsNobodyOnItsPort(t *testing.T) {
	node := openNode(t, Config{ID: "n1", Dir: t.TempDir(), Address: "127.0.0.1:0"})
	peer, err := transport.Listen(transport.Config{ID: "n2", Address: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(func() { peer.Close() })
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2"), Addr: []byte(peer.LocalAddr())}
	address := raft.ServerAddress(node.Address())
	err = peer.AppendEntries("n1", address, &raft.AppendEntriesRequest{RPCHeader: header, Term: 7},
		&raft.AppendEntriesResponse{})
	require.ErrorContains(t, err, ErrStateLost.Error())
	err = peer.RequestVote("n1", address, &raft.RequestVoteRequest{RPCHeader: header, Term: 7},
		&raft.RequestVoteResponse{})
	require.ErrorContains(t, err, ErrStateLost.Error())
	require.EqualValues(t, 2, node.admission.refused.Load())
}
