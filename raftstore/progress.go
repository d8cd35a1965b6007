package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// progress is how far the followers of a leader are, by what they acknowledged.
// The engine knows it and does not tell.
type progress struct {
	mu      sync.Mutex
	matched map[raft.ServerID]uint64
}

// begin forgets what followers said to an earlier leadership.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.matched = map[raft.ServerID]uint64{}
}

// note takes what a follower has acknowledged. A heartbeat names no entry.
func (p *progress) note(id raft.ServerID, request *raft.AppendEntriesRequest) {
	last := request.PrevLogEntry + uint64(len(request.Entries))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.matched != nil && last > p.matched[id] {
		p.matched[id] = last
	}
}

// of is how far a follower is; false if it has not been heard of.
func (p *progress) of(id string) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.matched[raft.ServerID(id)]
	return last, ok
}
