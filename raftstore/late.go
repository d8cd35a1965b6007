package raftstore

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// errLate rejects a request that its leader sent before a snapshot that has already arrived. The leader seldom waits
// for this answer.
var errLate = errors.New("request is older than a snapshot of its leader")

// newestSnapshot is the newest snapshot that this node was asked to install. The zero value is none. All methods may be
// called concurrently.
//
// A leader sends a snapshot because its log lacks entries, so it does not send entries before the end of that snapshot
// again in its term, nor an older snapshot, except to a node that lacks an entry behind the snapshot although its log
// says otherwise: one that was deposed during a restore. The Raft library would process such a late request. It would
// return to the older snapshot and forget what it has acknowledged, or append entries that the snapshot has replaced.
// It then returns to their configuration, and a log without gaps refuses all later entries, also after a restart.
type newestSnapshot struct {
	mu          sync.Mutex
	term, index uint64
}

// check returns an error for a request that is late. It records a snapshot that is not.
func (s *newestSnapshot) check(command any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch request := command.(type) {
	case *raft.InstallSnapshotRequest:
		if request.Term < s.term || request.Term == s.term && request.LastLogIndex < s.index {
			return fmt.Errorf("install snapshot of entry %d: %w", request.LastLogIndex, errLate)
		}
		s.term, s.index = request.Term, request.LastLogIndex
	case *raft.AppendEntriesRequest:
		if len(request.Entries) > 0 && request.Term <= s.term && request.Entries[0].Index <= s.index {
			return fmt.Errorf("append entry %d: %w", request.Entries[0].Index, errLate)
		}
	}
	return nil
}
