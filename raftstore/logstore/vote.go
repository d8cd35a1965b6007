package logstore

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// The keys under which the engine keeps its vote, and the one that replaces
// them.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
	keyVote          = "LastVote"
)

// Votes is a StableStore that writes a vote, term and candidate together, in
// one transaction. The engine writes the term and then the candidate
// (hashicorp/raft 661): after a crash between the two the node would have voted
// in the new term for the candidate of an older one, and would grant that
// candidate the vote again without looking at its log.
type Votes struct {
	raft.StableStore

	mu      sync.Mutex
	term    uint64 // of the vote whose candidate is yet to come
	pending bool
}

// NewVotes wraps a store.
func NewVotes(stable raft.StableStore) *Votes { return &Votes{StableStore: stable} }

// SetUint64 holds the term of a vote back until its candidate is known.
func (v *Votes) SetUint64(key []byte, value uint64) error {
	if string(key) != keyVoteTerm {
		return v.StableStore.SetUint64(key, value)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.term, v.pending = value, true
	return nil
}

// Set writes the candidate of a vote together with its term.
func (v *Votes) Set(key, value []byte) error {
	if string(key) != keyVoteCandidate {
		return v.StableStore.Set(key, value)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.pending {
		return fmt.Errorf("write vote: a candidate without a term")
	}
	v.pending = false
	return v.StableStore.Set([]byte(keyVote), append(binary.BigEndian.AppendUint64(nil, v.term), value...))
}

// GetUint64 reads the term of the last vote that is on disk.
func (v *Votes) GetUint64(key []byte) (uint64, error) {
	if string(key) != keyVoteTerm {
		return v.StableStore.GetUint64(key)
	}
	term, _, err := v.vote()
	return term, err
}

// Get reads the candidate of the last vote that is on disk.
func (v *Votes) Get(key []byte) ([]byte, error) {
	if string(key) != keyVoteCandidate {
		return v.StableStore.Get(key)
	}
	_, candidate, err := v.vote()
	return candidate, err
}

func (v *Votes) vote() (term uint64, candidate []byte, err error) {
	value, err := v.StableStore.Get([]byte(keyVote))
	switch {
	case notFound(err) || err == nil && len(value) == 0:
		return 0, nil, errNotFound
	case err != nil:
		return 0, nil, err
	case len(value) < 8:
		return 0, nil, fmt.Errorf("read vote: %d bytes are no vote", len(value))
	}
	return binary.BigEndian.Uint64(value), value[8:], nil
}
