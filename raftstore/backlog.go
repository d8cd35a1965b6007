package raftstore

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// committedIndex is the largest index that a leader has reported as committed. The commit
// index of the Raft library does not exceed the local log, so that it does not show how
// far the log itself is behind.
type committedIndex struct{ index atomic.Uint64 }

// observe takes the index from a request of a leader. Heartbeats have none.
func (c *committedIndex) observe(command any) {
	var reported uint64
	switch request := command.(type) {
	case *raft.AppendEntriesRequest:
		reported = request.LeaderCommitIndex
	case *raft.InstallSnapshotRequest:
		reported = request.LastLogIndex
	}
	for {
		known := c.index.Load()
		if reported <= known || c.index.CompareAndSwap(known, reported) {
			return
		}
	}
}

// Backlog returns the number of committed entries that this node knows of and has not
// applied. It counts the entries that the leader still has to send.
func (n *Node) Backlog() uint64 {
	committed := max(n.admission.committed.index.Load(), n.raft.CommitIndex())
	return committed - min(committed, n.raft.AppliedIndex())
}
