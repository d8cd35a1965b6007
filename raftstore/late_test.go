package raftstore

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/raftstore/logstore"
)

// lateSender sends requests of a leader to one node of a memory cluster, whether the two are connected or not.
type lateSender struct {
	t         *testing.T
	leader    *Node
	to        *Node
	transport *raft.InmemTransport
}

func (c *cluster) lateSender(t *testing.T, leader, to *Node) *lateSender {
	_, sender := raft.NewInmemTransportWithTimeout("late", time.Minute)
	sender.Connect(raft.ServerAddress(to.Address()), c.inmem[slices.Index(c.nodes, to)])
	return &lateSender{t, leader, to, sender}
}

func (s *lateSender) header() raft.RPCHeader {
	id := raft.ServerID(s.leader.ID())
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
		Addr: s.leader.transport.EncodePeer(id, raft.ServerAddress(s.leader.Address()))}
}

// snapshot makes a snapshot of the leader, and returns a function that sends it.
func (s *lateSender) snapshot() (send func() error) {
	s.t.Helper()
	require.NoError(s.t, s.leader.raft.Snapshot().Error())
	saved, err := s.leader.storage.Snapshots.List()
	require.NoError(s.t, err)
	meta, source, err := s.leader.storage.Snapshots.Open(saved[0].ID)
	require.NoError(s.t, err)
	defer source.Close()
	data, err := io.ReadAll(source)
	require.NoError(s.t, err)
	request := &raft.InstallSnapshotRequest{RPCHeader: s.header(), SnapshotVersion: meta.Version,
		Term: s.leader.raft.CurrentTerm(), LastLogIndex: meta.Index, LastLogTerm: meta.Term,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
		Size: meta.Size}
	return func() error {
		return s.transport.InstallSnapshot(raft.ServerID(s.to.ID()), raft.ServerAddress(s.to.Address()), request,
			new(raft.InstallSnapshotResponse), bytes.NewReader(data))
	}
}

// entryAfter sends an entry behind the last one, which is committed.
func (s *lateSender) entryAfter(last, term uint64) error {
	return s.transport.AppendEntries(raft.ServerID(s.to.ID()), raft.ServerAddress(s.to.Address()),
		&raft.AppendEntriesRequest{RPCHeader: s.header(), Term: term, PrevLogEntry: last, PrevLogTerm: term,
			Entries: []*raft.Log{{Index: last + 1, Term: term, Type: raft.LogNoop}}, LeaderCommitIndex: last},
		new(raft.AppendEntriesResponse))
}

// shortLog is a log without the entries that were deleted. The log of raft-wal returns them while it has their file.
type shortLog struct{ raft.LogStore }

func (l shortLog) IsMonotonic() bool {
	m, ok := l.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (l shortLog) GetLog(index uint64, log *raft.Log) error {
	if first, err := l.FirstIndex(); err != nil || index < first {
		return raft.ErrLogNotFound
	}
	return l.LogStore.GetLog(index, log)
}

// onShortLog gives a node a folder of its own with a shortLog.
func onShortLog(t testing.TB, kind logstore.Kind) func(*Config) {
	return func(c *Config) {
		onDisk(t, kind)(c)
		storage, err := openDisk(c.filled())
		require.NoError(t, err)
		storage.Log = shortLog{storage.Log}
		c.Storage, c.SnapshotEntries, c.SnapshotInterval = storage, 5, time.Hour
	}
}

// A follower that has installed a snapshot, and has no entries behind it, does not return to an older snapshot that the
// same leader sent before.
func TestLateSnapshotAfterANewerOne(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startMemory(t, 3, onShortLog(t, kind))
		follower := c.follower()
		late := c.lateSender(t, c.leader(), follower)
		s := openSession(t, c.backend(), time.Hour)
		acquireMany(t, s, 1, 5)
		sendFirst := late.snapshot()
		c.isolate(follower)
		acquireMany(t, s, 5, 20)
		late.snapshot()
		c.heal()
		last := c.agree().Index
		pass(time.Second) // heartbeats are acknowledged
		require.ErrorIs(t, follower.log.GetLog(last, new(raft.Log)), raft.ErrLogNotFound)

		_ = sendFirst() // nobody waits for the answer
		require.Equal(t, last, follower.raft.AppliedIndex())
		acquireMany(t, s, 20, 25)
		c.agree()
	})
}

// A second copy of a snapshot does not delete the entries behind it that a follower has acknowledged. It does not know
// yet whether they are committed.
func TestSecondCopyOfASnapshot(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startMemory(t, 3, onShortLog(t, kind))
		follower, leader := c.follower(), c.leader()
		late := c.lateSender(t, leader, follower)
		s := openSession(t, c.backend(), time.Hour)
		c.isolate(follower)
		acquireMany(t, s, 1, 20)
		sendAgain := late.snapshot()
		c.heal()
		last, term := c.agree().Index, leader.raft.CurrentTerm()
		pass(time.Second) // heartbeats are acknowledged
		c.isolate(follower)
		require.NoError(t, late.entryAfter(last, term))
		require.NoError(t, follower.log.GetLog(last+1, new(raft.Log)))
		_ = sendAgain() // nobody waits for the answer
		require.NoError(t, follower.log.GetLog(last+1, new(raft.Log)))
	})
}

// A follower that stopped before it deleted the entries that a snapshot has replaced goes on behind the snapshot.
func TestInterruptedInstall(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind, func(c *Config) { c.SnapshotEntries, c.SnapshotInterval = 5, time.Hour })
		s := openSession(t, c.backend(), time.Hour)
		acquireMany(t, s, 1, 5)
		c.agree()
		follower := c.follower()
		require.NoError(t, follower.Close())
		acquireMany(t, s, 5, 20)
		stopped := slices.Index(c.nodes, follower)
		for i, n := range c.nodes {
			if i != stopped {
				require.NoError(t, n.raft.Snapshot().Error())
				copySnapshot(t, n.storage, c.configs[stopped])
				c.reopen(i) // it has no deleted entries in memory
			}
		}
		c.restart(stopped)
		c.leader()
		acquireMany(t, openSameSession(t, c, s), 20, 25)
		c.agree()
	})
}

// Recover goes on behind the snapshot, too.
func TestRecoverAfterAnInterruptedInstall(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 2, kind)
		s := openSession(t, c.backend(), time.Hour)
		acquireMany(t, s, 1, 20)
		c.agree()
		leader, follower := c.leader(), c.follower()
		require.NoError(t, leader.raft.Snapshot().Error())
		config := c.configs[slices.Index(c.nodes, follower)]
		require.NoError(t, follower.Close())
		storage, err := openDisk(config.filled())
		require.NoError(t, err)
		last, err := storage.Log.LastIndex()
		require.NoError(t, err)
		require.NoError(t, storage.Log.DeleteRange(last-5, last))
		require.NoError(t, storage.Close())
		copySnapshot(t, leader.storage, config)
		_, config.Transport = raft.NewInmemTransport(raft.ServerAddress(config.ID))
		floor, err := Recover(config)
		require.NoError(t, err)
		require.True(t, floor.Newer(leader.Status().LastToken))
	})
}

// A damaged snapshot takes the place of no entries.
func TestInterruptedInstallOfADamagedSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 2, DefaultLogStore)
		openSession(t, c.backend(), time.Hour)
		c.agree()
		leader, follower := c.leader(), c.follower()
		config := c.configs[slices.Index(c.nodes, follower)]
		require.NoError(t, leader.raft.Snapshot().Error())
		require.NoError(t, follower.Close())
		copySnapshot(t, leader.storage, config)
		states, err := filepath.Glob(filepath.Join(config.Dir, "snapshots", "*", "state.bin"))
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.NoError(t, os.WriteFile(states[0], []byte("damaged"), 0o600))
		storage, err := openDisk(config.filled())
		require.NoError(t, err)
		defer storage.Close()
		last, err := storage.Log.LastIndex()
		require.NoError(t, err)
		require.NoError(t, storage.Log.DeleteRange(last, last))
		require.Error(t, completeInstall(storage))
		kept, err := storage.Log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, last-1, kept)
	})
}

// A snapshot that was not completed is removed at the next start.
func TestPartialSnapshotsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 1, DefaultLogStore)
		require.NoError(t, c.nodes[0].Close())
		partial := filepath.Join(c.configs[0].Dir, "snapshots", "1-2-3.tmp")
		require.NoError(t, os.MkdirAll(partial, 0o755))
		c.restart(0)
		require.NoDirExists(t, partial)
		c.leader()
	})
}

// copySnapshot copies the newest snapshot to the folder of a closed node.
func copySnapshot(t *testing.T, from *Storage, to Config) {
	t.Helper()
	saved, err := from.Snapshots.List()
	require.NoError(t, err)
	meta, source, err := from.Snapshots.Open(saved[0].ID)
	require.NoError(t, err)
	defer source.Close()
	storage, err := openDisk(to.filled())
	require.NoError(t, err)
	_, transport := raft.NewInmemTransport("")
	sink, err := storage.Snapshots.Create(meta.Version, meta.Index, meta.Term, meta.Configuration,
		meta.ConfigurationIndex, transport)
	require.NoError(t, err)
	_, err = io.Copy(sink, source)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	require.NoError(t, storage.Close())
}

// Entries that arrive after a snapshot took their place are not appended.
func TestLateEntriesAfterASnapshot(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startMemory(t, 2, onShortLog(t, kind))
		leader := c.leader()
		entries := make([]*raft.Log, 3)
		for i := range entries {
			entries[i] = new(raft.Log)
			require.NoError(t, leader.log.GetLog(uint64(i+1), entries[i]))
		}
		s := openSession(t, c.backend(), time.Hour)
		acquireMany(t, s, 1, 20)
		joiner := c.add("joiner", onShortLog(t, kind))
		late := c.lateSender(t, leader, joiner)
		c.isolate(joiner)
		index, err := joiner.learn(testContext(t), leader)
		require.NoError(t, err)
		late.snapshot()
		c.heal()
		eventually(t, "the node has caught up", func() bool { return joiner.raft.AppliedIndex() >= index })
		members := joiner.Members()

		var answer raft.AppendEntriesResponse
		require.NoError(t, late.transport.AppendEntries(raft.ServerID(joiner.ID()), raft.ServerAddress(joiner.Address()),
			&raft.AppendEntriesRequest{RPCHeader: late.header(), Term: leader.raft.CurrentTerm(), Entries: entries,
				LeaderCommitIndex: 3}, &answer))
		require.False(t, answer.Success)
		require.Equal(t, members, joiner.Members())
		acquireMany(t, s, 20, 25)
		c.agree()
	})
}

// A follower whose first entry behind a snapshot comes from a deposed leader replaces it by that of the next leader
// (hashicorp/raft 697).
func TestDeposedEntryBehindASnapshot(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startMemory(t, 5, onShortLog(t, kind))
		leader, follower := c.leader(), c.follower()
		late := c.lateSender(t, leader, follower)
		s := openSession(t, c.backend(), time.Hour)
		c.isolate(follower)
		acquireMany(t, s, 1, 20)
		late.snapshot()
		c.heal()
		last, term := c.agree().Index, leader.raft.CurrentTerm()
		require.ErrorIs(t, follower.log.GetLog(last, new(raft.Log)), raft.ErrLogNotFound)

		c.isolate(leader)
		for i := range c.nodes {
			c.inmem[i].Disconnect(raft.ServerAddress(follower.Address()))
		}
		require.NoError(t, late.entryAfter(last, term))
		eventually(t, "the leader is deposed", func() bool { return !leader.Leads() })
		c.leader()
		acquireMany(t, s, 20, 22)
		require.Equal(t, last+1, follower.raft.LastIndex())
		c.heal()
		acquireMany(t, s, 22, 25)
		c.agree()
	})
}

// A follower has the last entry of its snapshot for the check of the entry before a request. A leader does not have it.
func TestFollowerLog(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startMemory(t, 3, onShortLog(t, kind))
		leader, follower := c.leader(), c.follower()
		s := openSession(t, c.backend(), time.Hour)
		c.isolate(follower)
		acquireMany(t, s, 1, 20)
		require.NoError(t, leader.raft.Snapshot().Error())
		c.heal()
		last := c.agree().Index
		has := func(n *Node, index uint64) bool { return n.followed.GetLog(index, new(raft.Log)) == nil }
		eventually(t, "a request follows the snapshot", func() bool { return has(follower, last) })
		observe := func(previous, ago uint64) {
			term := follower.raft.CurrentTerm() - ago
			follower.followed.observe(&raft.AppendEntriesRequest{PrevLogEntry: previous, Term: term})
		}
		observe(last-1, 0)
		require.False(t, has(follower, last), "entries at the end of the snapshot are not compared with it")
		require.False(t, has(follower, last-1))
		observe(last, 1)
		require.False(t, has(follower, last), "a late request of a deposed leader")

		require.NoError(t, leader.Transfer(testContext(t), follower.ID()))
		eventually(t, "the follower leads", follower.Leads)
		observe(last, 0)
		require.False(t, has(follower, last))
	})
}
