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
	previous atomic.Uint64 // the entry before those of the last request
}

var _ raft.MonotonicLogStore = (*followerLog)(nil)

// observe notes which entry a request of a leader follows. Heartbeats follow none. A late request of a deposed leader
// does not count: it may arrive while the library processes a request of the present one, which has one at a time.
func (l *followerLog) observe(command any) {
	request, ok := command.(*raft.AppendEntriesRequest)
	if ok && request.PrevLogEntry > 0 && request.Term >= l.node.raft.CurrentTerm() {
		l.previous.Store(request.PrevLogEntry)
	}
}

// GetLog reads an entry. The last one of the newest snapshot may have only its term. It is not compared with an entry
// of a leader at the same index: a leader that was deposed during a restore has a snapshot that no other member has.
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

// snapshotEnd returns the last entry of the newest snapshot, 0 if the node is not a follower: a leader without that
// entry has to send the snapshot.
func (n *Node) snapshotEnd() (index, term uint64) {
	select {
	case <-n.started:
	default:
		return 0, 0
	}
	if n.raft.State() != raft.Follower {
		return 0, 0
	}
	stats := n.raft.Stats()
	index, _ = strconv.ParseUint(stats["last_snapshot_index"], 10, 64)
	term, _ = strconv.ParseUint(stats["last_snapshot_term"], 10, 64)
	return index, term
}
