package raftstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// losesEntries is a Transport that can lose the entries on the way to one node. The rest
// of the request arrives.
type losesEntries struct {
	transport.Transport
	to *atomic.Value // the raft.ServerID of the node
}

func (l losesEntries) AppendEntries(id raft.ServerID, to raft.ServerAddress, request *raft.AppendEntriesRequest,
	answer *raft.AppendEntriesResponse) error {
	if l.to.Load() != id || request.PrevLogEntry == 0 {
		return l.Transport.AppendEntries(id, to, request, answer)
	}
	empty := *request
	empty.Entries = nil
	_ = l.Transport.AppendEntries(id, to, &empty, &raft.AppendEntriesResponse{})
	return errors.New("the entries are lost")
}

// A follower that has not received committed entries knows how many it lacks, although
// it has applied all that it has.
func TestBacklogCountsEntriesThatWereNotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var victim atomic.Value
		c := startMemory(t, 3, func(config *Config) { config.Transport = losesEntries{config.Transport, &victim} })
		leader := c.leader()
		behind := c.nodes[0]
		if behind == leader {
			behind = c.nodes[1]
		}
		eventually(t, "no backlog", func() bool {
			entries, known := behind.Backlog()
			return known && entries == 0
		})
		victim.Store(raft.ServerID(behind.ID()))
		const entries = 20
		for range entries {
			openSession(t, c.backend(), time.Minute)
		}
		eventually(t, "the backlog is known", func() bool { return backlog(behind) >= entries })
		require.Equal(t, behind.raft.LastIndex(), behind.raft.AppliedIndex(), "it has applied all that it has")
		require.Zero(t, backlog(leader))
		victim.Store(raft.ServerID(""))
		eventually(t, "it has caught up", func() bool { return backlog(behind) == 0 })
	})
}

func backlog(n *Node) uint64 {
	entries, _ := n.Backlog()
	return entries
}

// A node that has restarted hears heartbeats before the leader sends entries again, and does not know what it lacks.
// So does one that could not be reached for a while.
func TestBacklogIsUnknownUntilTheLeaderReportsIt(t *testing.T) {
	var c committedIndex
	now := engine.MonotonicClock().Now()
	heartbeat, entries := &raft.AppendEntriesRequest{}, &raft.AppendEntriesRequest{LeaderCommitIndex: 7}
	c.observe(&raft.RequestVoteRequest{}, now)
	require.True(t, c.known(), "there is no leader")
	c.observe(heartbeat, now)
	require.False(t, c.known(), "after a restart")
	c.observe(entries, now)
	require.True(t, c.known())
	c.observe(heartbeat, now.Add(maxReportAge/2))
	require.True(t, c.known())
	c.observe(heartbeat, now.Add(time.Minute))
	require.False(t, c.known(), "after a partition")
	c.observe(entries, now.Add(time.Minute))
	require.True(t, c.known())
}

// A node that has lost its leader cannot learn more. Whether it is ready does not depend on its last heartbeat.
func TestBacklogWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		follower := c.follower()
		c.isolate(follower)
		eventually(t, "the follower has no leader", func() bool {
			leader, _ := follower.Leader()
			return leader == ""
		})
		committed := &follower.admission.committed
		committed.observe(&raft.AppendEntriesRequest{}, follower.config.Clock.Now().Add(time.Hour))
		_, known := follower.Backlog()
		require.True(t, known)
	})
}
