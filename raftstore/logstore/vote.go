package logstore

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// The keys of a vote in the Raft library, and the key that replaces them.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
	keyVote          = "LastVote"
)

// Votes is a StableStore that writes term and candidate of a vote in one transaction. The
// Raft library writes the term and then the candidate (hashicorp/raft 661). After a crash
// between the two, the node would have voted in the new term for the candidate of an older
// one, and would grant that candidate the vote again without checking its log.
type Votes struct {
	raft.StableStore
	// Refuse returns why the node must not vote, nil if it may. The Raft library votes, for
	// others and for itself, only after it has written the vote.
	Refuse func() error

	mu      sync.Mutex
	term    uint64 // of a vote whose candidate is not set yet
	pending bool
}

// NewVotes wraps a store. The node may vote, unless the caller sets Refuse.
func NewVotes(stable raft.StableStore) *Votes {
	return &Votes{StableStore: stable, Refuse: func() error { return nil }}
}

// SetUint64 keeps the term of a vote until its candidate is known.
func (v *Votes) SetUint64(key []byte, value uint64) error {
	if string(key) != keyVoteTerm {
		return v.StableStore.SetUint64(key, value)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.Refuse(); err != nil {
		return err
	}
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
	if err := v.Refuse(); err != nil {
		return err
	}
	if !v.pending {
		return fmt.Errorf("write vote: a candidate without a term")
	}
	v.pending = false
	return v.StableStore.Set([]byte(keyVote), append(binary.BigEndian.AppendUint64(nil, v.term), value...))
}

// GetUint64 reads the term of the last vote on disk.
func (v *Votes) GetUint64(key []byte) (uint64, error) {
	if string(key) != keyVoteTerm {
		return v.StableStore.GetUint64(key)
	}
	term, _, err := v.vote()
	return term, err
}

// Get reads the candidate of the last vote on disk.
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
		return 0, nil, fmt.Errorf("read vote: %d bytes are not a vote", len(value))
	}
	return binary.BigEndian.Uint64(value), value[8:], nil
}
