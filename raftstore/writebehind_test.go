package raftstore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// A leader replicates an entry while its own disk writes it, and commits it only when both
// are done: if it crashed before, the follower might be the only member with the entry.
func TestAcknowledgementsWaitForTheOwnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		c := startMemory(t, 3, disks(under, make(chan error, 3)), func(c *Config) { c.StoreDeadline = time.Hour })
		leader := c.leader()
		s := openSession(t, c.backend(), time.Hour)
		c.agree()
		stuck := make(chan struct{})
		under[leader.ID()].stuck.Store(&stuck)
		before := leader.raft.LastIndex()
		granted := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background(), lockRequest(1, "a"))
			granted <- err
		}()
		for _, n := range c.nodes {
			eventually(t, "the entry", func() bool { return n.raft.LastIndex() > before })
		}
		pass(10 * time.Second)
		require.Equal(t, before, leader.raft.CommitIndex(), "a crash would lose what the leader calls committed")
		require.Empty(t, granted)
		under[leader.ID()].stuck.Store(nil)
		close(stuck)
		require.NoError(t, firstOf(t, granted, "the grant"))
	})
}

// A leader without other voters, and a change of the members, wait for the disk.
func TestEntriesWithoutAcknowledgementsAreWrittenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 2)
		leader := c.leader()
		command, change := &raft.Log{Type: raft.LogCommand}, &raft.Log{Type: raft.LogConfiguration}
		require.True(t, leader.writesEarly([]*raft.Log{command}))
		require.False(t, leader.writesEarly([]*raft.Log{command, change}), "the change may remove the other voter")
		for _, n := range c.nodes {
			if n != leader {
				require.False(t, n.writesEarly([]*raft.Log{command}), "a follower acknowledges")
				require.NoError(t, leader.Remove(testContext(t), n.ID()))
			}
		}
		require.False(t, leader.writesEarly([]*raft.Log{command}), "nobody else acknowledges")
	})
}

// A leader that is deposed acknowledges its own entries to the next leader only when they are on
// its disk, although its log already has them.
func TestFormerLeaderWritesBeforeItAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		c := startMemory(t, 3, disks(under, make(chan error, 3)), func(c *Config) { c.StoreDeadline = time.Hour })
		old := c.leader()
		s := openSession(t, c.backend(), time.Hour)
		c.agree()
		stuck := make(chan struct{})
		under[old.ID()].stuck.Store(&stuck)
		before := old.raft.LastIndex()
		go func() { _, _ = s.Acquire(context.Background(), lockRequest(1, "a")) }()
		i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n != old })
		next := c.nodes[i]
		eventually(t, "the entry", func() bool { return next.raft.LastIndex() > before })

		var last, entry raft.Log
		require.NoError(t, next.storage.Log.GetLog(before, &last))
		require.NoError(t, next.storage.Log.GetLog(before+1, &entry))
		request := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
			ID: []byte(next.ID()), Addr: []byte(next.ID())}, Term: entry.Term + 1, PrevLogEntry: before, PrevLogTerm: last.Term,
			Entries: []*raft.Log{&entry}}
		var response raft.AppendEntriesResponse
		err := c.inmem[i].AppendEntries(raft.ServerID(old.ID()), raft.ServerAddress(old.ID()), request, &response)
		require.Error(t, err, "the entry is acknowledged (%v), and a crash would lose it", response.Success)
		under[old.ID()].stuck.Store(nil)
		close(stuck)
		c.agree()
	})
}
