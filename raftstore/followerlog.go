package raftstore

import (
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/transport"
)

// followerLog is the log that the Raft library reads. For a leader's request that follows the newest snapshot, it also
// has the last entry of that snapshot, whose entries are not in the log.
//
// The library knows the term of that entry only while nothing follows the snapshot. A follower with an entry of a
// deposed leader right behind its snapshot would refuse all requests of the next leader, which sends ever older entries
// (hashicorp/raft 697).
type followerLog struct {
	*raft.LogCache
	node     *Node
	previous atomic.Uint64 // the index before the entries of the last request
}

var _ raft.MonotonicLogStore = (*followerLog)(nil)

// observe records the index before the entries of a leader's request. Heartbeats have none. It ignores late requests
// from a deposed leader, which may arrive while the library handles a request from the current one. The current leader
// has only one request in flight.
func (l *followerLog) observe(command any) {
	request, ok := command.(*raft.AppendEntriesRequest)
	if ok && request.PrevLogEntry > 0 && request.Term >= l.node.raft.CurrentTerm() {
		l.previous.Store(request.PrevLogEntry)
	}
}

// GetLog reads an entry. It may return the last entry of the newest snapshot with its term only. Such an entry must not
// be compared with a leader's entry at the same index: a leader that was deposed during a restore has a snapshot that
// no other member has.
func (l *followerLog) GetLog(index uint64, log *raft.Log) error {
	err := l.LogCache.GetLog(index, log)
	if !errors.Is(err, raft.ErrLogNotFound) || index != l.previous.Load() {
		return err
	}
	if end, term := l.node.snapshotEnd(); end == index {
		*log = raft.Log{Index: index, Term: term, Type: transport.SnapshotEnd}
		return nil
	}
	return err
}

// snapshotEnd returns index and term of the last entry in the newest snapshot, or 0 if the node is not a follower: a
// leader that lacks the entry must send the snapshot.
func (n *Node) snapshotEnd() (index, term uint64) {
	select {
	case <-n.started:
	default:
		return 0, 0
	}
	if n.raft.State() != raft.Follower {
		return 0, 0
	}
	return n.lastSnapshot()
}

// lastSnapshot returns index and term of the last entry in the newest snapshot.
func (n *Node) lastSnapshot() (index, term uint64) {
	stats := n.raft.Stats()
	index, _ = strconv.ParseUint(stats["last_snapshot_index"], 10, 64)
	term, _ = strconv.ParseUint(stats["last_snapshot_term"], 10, 64)
	return index, term
}
