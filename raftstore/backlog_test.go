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
	"github.com/leased-project/leased/raftstore/logstore"
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
	now := engine.MonotonicClock().Now()
	c := committedIndex{opened: now}
	heartbeat, entries := &raft.AppendEntriesRequest{}, &raft.AppendEntriesRequest{LeaderCommitIndex: 7}
	known := func() bool { return c.known("leader", now) }
	c.observe(&raft.RequestVoteRequest{}, now)
	require.False(t, c.known("", now), "the leader has not found this node yet")
	require.True(t, c.known("", now.Add(contactWait)), "there is no leader")
	c.observe(heartbeat, now)
	require.False(t, known(), "after a restart")
	require.False(t, c.known("leader", now.Add(contactWait)))
	c.observe(entries, now)
	require.True(t, known())
	c.observe(heartbeat, now.Add(maxReportAge/2))
	require.True(t, known())
	c.observe(heartbeat, now.Add(time.Minute))
	require.False(t, known(), "after a partition")
	require.True(t, c.known("", now), "it has lost the leader, and cannot learn more")
	c.observe(entries, now.Add(time.Minute))
	require.True(t, known())
}

// A restarted node waits for the first contact with a leader, unless there is nobody to wait for: it may lack entries,
// and a rolling restart must not go on to the next member.
func TestBacklogBeforeTheFirstContact(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		known := func(n *Node) bool { _, known := n.Backlog(); return known }
		leader := c.leader()
		for _, n := range c.nodes {
			if n != leader {
				require.NoError(t, n.Close())
			}
		}
		eventually(t, "the leader resigns", func() bool { return !leader.Leads() })
		require.True(t, known(leader))
		require.NoError(t, leader.Close())
		restarted := c.restart(0)
		require.False(t, known(restarted))
		pass(contactWait - time.Second)
		require.False(t, known(restarted))
		pass(time.Second)
		require.True(t, known(restarted), "there is no leader to wait for")
		require.True(t, known(c.add("new")), "it has not joined a cluster")
	})
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
