package transport

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Progress records the last entry that each follower has acknowledged to this
// leader, and how often each has answered, because the Raft library does not export it. All
// methods may be called concurrently. The zero value records no entries until Reset.
type Progress struct {
	mu      sync.Mutex
	matched map[raft.ServerID]uint64
	answers map[raft.ServerID]uint64
}

// Reset drops the acknowledgements of an earlier leadership.
func (p *Progress) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.matched = map[raft.ServerID]uint64{}
}

// acknowledged records a successful request. A heartbeat names no entry.
func (p *Progress) acknowledged(id raft.ServerID, request *raft.AppendEntriesRequest) {
	last := request.PrevLogEntry + uint64(len(request.Entries))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.matched != nil && last > p.matched[id] {
		p.matched[id] = last
	}
}

// Of returns the last entry that a follower has acknowledged; false if it has
// acknowledged nothing.
func (p *Progress) Of(id string) (index uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index, ok = p.matched[raft.ServerID(id)]
	return index, ok
}

// answered records an answer to AppendEntries.
func (p *Progress) answered(id raft.ServerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == nil {
		p.answers = map[raft.ServerID]uint64{}
	}
	p.answers[id]++
}

// Answers returns how often a follower has answered AppendEntries. It only grows.
func (p *Progress) Answers(id string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers[raft.ServerID(id)]
}
