package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
)

// reopen restarts a node of a disk cluster on its data folder.
func (c *cluster) reopen(i int) {
	c.t.Helper()
	require.NoError(c.t, c.nodes[i].Close())
	c.restart(i)
}

func TestRestartedNodeHasItsState(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 1, kind)
		s := openSession(t, c.backend(), time.Hour)
		first, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		before := c.nodes[0].Status()
		require.ErrorIs(t, c.nodes[0].Bootstrap(), ErrBootstrapped)
		c.reopen(0)
		c.leader()
		after := c.nodes[0].Status()
		require.Equal(t, before.LastToken, after.LastToken)
		require.Equal(t, before.Counts, after.Counts)
		require.Greater(t, after.Generation, before.Generation)
		again, err := openSameSession(t, c, s).Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		require.Equal(t, first.Token, again.Token)
	})
}

// openSameSession opens the session of a client that reconnects to the cluster.
func openSameSession(t *testing.T, c *cluster, s engine.Session) engine.Session {
	t.Helper()
	found, err := c.backend().Open(testContext(t), s.(*Session).config)
	require.NoError(t, err)
	return found
}

func TestSnapshotSaveInspectRestore(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		ctx := testContext(t)
		lost := make(chan engine.Nonce, 100)
		s, err := c.backend().Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour,
			Clock: engine.SystemClock(),
			Lost:  func(nonce engine.Nonce, _ error) { lost <- nonce }})
		require.NoError(t, err)
		kept, err := s.Acquire(ctx, lockRequest(1, "kept"))
		require.NoError(t, err)
		var saved bytes.Buffer
		info, err := c.leader().SaveSnapshot(ctx, &saved)
		require.NoError(t, err)
		require.Equal(t, kept.Token, info.LastToken)
		require.Equal(t, 1, info.Counts.Holders)
		inspected, err := InspectSnapshot(bytes.NewReader(saved.Bytes()))
		require.NoError(t, err)
		require.Equal(t, info, inspected)

		later, err := s.Acquire(ctx, lockRequest(2, "later"))
		require.NoError(t, err)
		floor, err := c.leader().RestoreSnapshot(ctx, bytes.NewReader(saved.Bytes()))
		require.NoError(t, err)
		require.GreaterOrEqual(t, floor, later.Token+fencing.FloorStep)
		var told []engine.Nonce
		for len(told) < 2 {
			select {
			case nonce := <-lost:
				told = append(told, nonce)
			case <-ctx.Done():
				require.FailNow(t, "a holder was not notified", "notified: %v", told)
			}
		}
		require.ElementsMatch(t, []engine.Nonce{1, 2}, told, "every holder is notified of its loss")
		_, err = s.Renew(ctx)
		require.ErrorIs(t, err, engine.ErrExpired)
		_, err = s.Acquire(ctx, lockRequest(3, "later"))
		require.ErrorIs(t, err, engine.ErrExpired)
		require.Zero(t, c.leader().Status().Counts, "there are no leases")
		next, err := openSameSession(t, c, s).Acquire(ctx, lockRequest(3, "later"))
		require.NoError(t, err)
		require.Greater(t, next.Token, floor, "no token is granted twice")
		c.agree()
		for i := range c.nodes {
			c.reopen(i)
		}
		c.leader()
		fourth, err := openSameSession(t, c, s).Acquire(ctx, lockRequest(4, "d"))
		require.NoError(t, err)
		require.Greater(t, fourth.Token, next.Token)
		c.agree()
	})
}

func TestDamagedSnapshotsAreRefused(t *testing.T) {
	c := startDisk(t, 1, DefaultLogStore)
	openSession(t, c.backend(), time.Hour)
	var saved bytes.Buffer
	_, err := c.leader().SaveSnapshot(testContext(t), &saved)
	require.NoError(t, err)
	good := saved.Bytes()
	for name, damage := range map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"cut":       func(b []byte) []byte { return b[:len(b)-3] },
		"flipped":   func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
		"no header": func(b []byte) []byte { return b[:len(snapshotMagic)] },
		"false":     func(b []byte) []byte { return bytes.Replace(b, []byte(`"lastToken":0`), []byte(`"lastToken":9`), 1) },
		"foreign":   func(b []byte) []byte { return append([]byte("x"), b...) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := damage(bytes.Clone(good))
			_, err := InspectSnapshot(bytes.NewReader(bad))
			require.ErrorIs(t, err, ErrSnapshot)
			_, err = c.leader().RestoreSnapshot(testContext(t), bytes.NewReader(bad))
			require.ErrorIs(t, err, ErrSnapshot)
		})
	}
	require.True(t, c.leader().Leads())
}

func TestRecoveryFromALostMajority(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		ctx := testContext(t)
		s := openSession(t, c.backend(), time.Hour)
		held, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		c.agree()
		for _, n := range c.nodes {
			require.NoError(t, n.Close())
		}
		floor, err := Recover(c.configs[2])
		require.NoError(t, err)
		require.GreaterOrEqual(t, floor, held.Token+fencing.FloorStep)

		survivor := c.restart(2)
		alone := &cluster{t: t, nodes: []*Node{survivor}}
		alone.leader()
		require.Len(t, survivor.Members(), 1)
		found := openSameSession(t, alone, s)
		require.Zero(t, survivor.Status().Counts.Holders, "its leases may have other holders")
		require.NotEqual(t, s.(*Session).Incarnation(), found.(*Session).Incarnation())
		again, err := found.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.Greater(t, again.Token, floor)

		fresh := c.add("fresh", onDisk(t, kind))
		require.NoError(t, fresh.Join(ctx, survivor))
		alone.nodes = append(alone.nodes, fresh)
		alone.agree()
	})
}

func TestLogIsCompacted(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 1, kind, func(c *Config) { c.SnapshotEntries, c.SnapshotInterval = 20, 10*time.Millisecond })
		s := openSession(t, c.backend(), time.Hour)
		for i := range 100 {
			_, err := s.Acquire(testContext(t), lockRequest(engine.Nonce(i+1), fencing.Resource(fmt.Sprint("lock ", i))))
			require.NoError(t, err)
		}
		eventually(t, "a shorter log", func() bool {
			first, err := c.nodes[0].storage.Log.FirstIndex()
			require.NoError(t, err)
			return first > 1
		})
		before := c.nodes[0].Status()
		c.reopen(0)
		c.leader()
		after := c.nodes[0].Status()
		require.Equal(t, before.LastToken, after.LastToken)
		require.Equal(t, before.Counts, after.Counts)
	})
}

// brokenSnapshots fails to create snapshots.
type brokenSnapshots struct {
	raft.SnapshotStore
	err error
}

func (b *brokenSnapshots) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64,
	raft.Transport) (raft.SnapshotSink, error) {
	return nil, b.err
}

// The Raft library never completes the future of a failed snapshot, so this test runs in real
// time.
func TestFailedSnapshotEndsTheNode(t *testing.T) {
	t.Parallel()
	broken := errors.New("no space left on device")
	ended := make(chan error, 1)
	c := startMemory(t, 1, func(c *Config) {
		c.Storage.Snapshots = &brokenSnapshots{c.Storage.Snapshots, broken}
		c.Fatal = func(err error) { ended <- err }
	})
	n := c.leader()
	_, err := n.SaveSnapshot(testContext(t), io.Discard)
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorIs(t, n.Failure(), broken)
	require.ErrorIs(t, firstOf(t, ended, "the node ends"), broken)
}

// A node contains a snapshot if it has applied its last entry, or has that entry in its log. A leader that was deposed
// during a restore contains none: its state is not in the log.
func TestContainedSnapshots(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		ctx := testContext(t)
		acquireMany(t, openSession(t, c.backend(), time.Hour), 1, 5)
		c.agree()
		leader, follower := c.leader(), c.follower()
		contains := func(n *Node, index, term uint64) bool {
			return n.contains(&raft.InstallSnapshotRequest{LastLogIndex: index, LastLogTerm: term})
		}
		last, term := follower.raft.AppliedIndex(), follower.raft.CurrentTerm()
		require.True(t, contains(follower, last, term))
		require.False(t, contains(follower, last, term-1))
		require.True(t, contains(follower, last-1, 0), "its term is not known any more")
		require.False(t, contains(follower, last+1, term))

		var saved bytes.Buffer
		_, err := leader.SaveSnapshot(ctx, &saved)
		require.NoError(t, err)
		info, state, err := readSnapshot(&saved)
		require.NoError(t, err)
		require.True(t, contains(leader, last, term))
		c.isolate(leader)
		require.Error(t, leader.raft.Restore(&raft.SnapshotMeta{Version: 1, Index: info.Index, Term: info.Term,
			Size: int64(len(state))}, bytes.NewReader(state), time.Second))
		require.Greater(t, leader.raft.AppliedIndex(), last)
		require.False(t, contains(leader, last, term))
		c.heal()
	})
}

// A snapshot that arrives after the entries behind it changes nothing, in particular not the configuration.
func TestLateSnapshotIsNotInstalled(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		ctx := testContext(t)
		leader, follower := c.leader(), c.follower()
		require.NoError(t, leader.raft.Snapshot().Error())
		saved, err := leader.storage.Snapshots.List()
		require.NoError(t, err)
		meta, data, err := leader.storage.Snapshots.Open(saved[0].ID)
		require.NoError(t, err)
		defer data.Close()
		for _, n := range c.nodes {
			if n != leader && n != follower {
				require.NoError(t, leader.Remove(ctx, n.ID()))
			}
		}
		eventually(t, "the removal reaches the follower", func() bool { return len(follower.Members()) == 2 })
		before := follower.Status()

		id := raft.ServerID(leader.ID())
		header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
			Addr: leader.transport.EncodePeer(id, raft.ServerAddress(leader.Address()))}
		request := &raft.InstallSnapshotRequest{RPCHeader: header, SnapshotVersion: meta.Version, Term: before.Term,
			LastLogIndex: meta.Index, LastLogTerm: meta.Term, Configuration: raft.EncodeConfiguration(meta.Configuration),
			ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size}
		var response raft.InstallSnapshotResponse
		require.NoError(t, leader.transport.InstallSnapshot(raft.ServerID(follower.ID()),
			raft.ServerAddress(follower.Address()), request, &response, data))
		require.True(t, response.Success, "the leader goes on with the entries behind it")
		rest, err := io.ReadAll(data)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, before.Members, follower.Status().Members)
		require.GreaterOrEqual(t, follower.Status().Applied, before.Applied)
		acquireMany(t, openSession(t, c.backend(), time.Hour), 1, 3)
	})
}
