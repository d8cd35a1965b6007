package raftstore

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

// maxReportAge is how long heartbeats may arrive without a report of the commit index. A leader reports it at least
// every 100 ms, unless it waits longer and longer after a member could not be reached.
const maxReportAge = 2 * time.Second

// contactWait is how long a node that has started waits for the first contact with a leader. If there is none by then,
// it counts as up to date, as far as it can be: efficiency mode needs no leader.
const contactWait = 15 * time.Second

// committedIndex is the largest index that a leader has reported as committed. The commit
// index of the Raft library does not exceed the local log, so that it does not show how
// far the log itself is behind.
type committedIndex struct {
	opened engine.Instant // when the node started

	mu       sync.Mutex
	index    uint64
	reported engine.Instant // the last report
	contact  engine.Instant // the last request of a leader
}

// observe takes the index from a request of a leader. Heartbeats have none.
func (c *committedIndex) observe(command any, now engine.Instant) {
	var reported uint64
	switch request := command.(type) {
	case *raft.AppendEntriesRequest:
		reported = request.LeaderCommitIndex
	case *raft.InstallSnapshotRequest:
		reported = request.LastLogIndex
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contact = now
	if reported > 0 {
		c.index, c.reported = max(c.index, reported), now
	}
}

// led notes that this node has committed an entry as the leader, so that it knows the index.
func (c *committedIndex) led(now engine.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contact, c.reported = now, now
}

// known reports whether the index is up to date, as far as it can be. leader is the one that the node knows. The caller
// holds mu.
func (c *committedIndex) known(leader string, now engine.Instant) bool {
	switch {
	case c.contact.IsZero():
		return now.Since(c.opened) >= contactWait
	case leader == "":
		return true
	}
	return !c.reported.IsZero() && c.contact.Since(c.reported) < maxReportAge
}

// Backlog returns the number of committed entries that this node knows of and has not
// applied. It counts the entries that the leader still has to send. known is false while the node has a leader that
// has not reported its commit index, as after a restart, and until contactWait before the first contact.
func (n *Node) Backlog() (entries uint64, known bool) {
	leader, _ := n.Leader()
	others, _ := n.turnAfter(n.ID())
	c := &n.admission.committed
	c.mu.Lock()
	committed, known := max(c.index, n.raft.CommitIndex()), c.known(leader, n.config.Clock.Now())
	c.mu.Unlock()
	return committed - min(committed, n.raft.AppliedIndex()), known || others == 0 || n.Leads()
}
