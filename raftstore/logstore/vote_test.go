package logstore

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// crashing is a store whose process crashes after this many writes.
type crashing struct {
	raft.StableStore
	writes int
}

var errCrash = errors.New("the process has ended")

func (c *crashing) Set(key, value []byte) error {
	if c.writes--; c.writes < 0 {
		return errCrash
	}
	return c.StableStore.Set(key, value)
}

func (c *crashing) SetUint64(key []byte, value uint64) error {
	if c.writes--; c.writes < 0 {
		return errCrash
	}
	return c.StableStore.SetUint64(key, value)
}

// vote persists a vote in two writes, as the Raft library does.
func vote(s raft.StableStore, term uint64, candidate string) {
	if s.SetUint64([]byte(keyVoteTerm), term) == nil {
		_ = s.Set([]byte(keyVoteCandidate), []byte(candidate))
	}
}

type cast struct {
	term      uint64
	candidate string
}

func lastVote(t *testing.T, s raft.StableStore) cast {
	term, err := s.GetUint64([]byte(keyVoteTerm))
	require.NoError(t, err)
	candidate, err := s.Get([]byte(keyVoteCandidate))
	require.NoError(t, err)
	return cast{term, string(candidate)}
}

func TestVoteIsWrittenAtomically(t *testing.T) {
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			mixed := 0
			for writes := range 3 {
				store, err := Open(kind, t.TempDir(), nil)
				require.NoError(t, err)
				before, after := cast{4, "b"}, cast{5, "a"}
				vote(NewVotes(store.Stable), before.term, before.candidate)
				vote(NewVotes(&crashing{store.Stable, writes}), after.term, after.candidate)
				require.Contains(t, []cast{before, after}, lastVote(t, NewVotes(store.Stable)), "crashed after %d writes", writes)

				// Without NewVotes, to show that the test detects a partial vote.
				vote(store.Stable, before.term, before.candidate)
				vote(&crashing{store.Stable, writes}, after.term, after.candidate)
				if got := lastVote(t, store.Stable); got != before && got != after {
					mixed++
				}
				require.NoError(t, store.Close())
			}
			require.Equal(t, 1, mixed, "two writes leave a vote that was never cast")
		})
	}
}

func TestVoteSurvivesReopening(t *testing.T) {
	for _, kind := range []Kind{Bolt, WAL} {
		dir := t.TempDir()
		store, err := Open(kind, dir, nil)
		require.NoError(t, err)
		v := NewVotes(store.Stable)
		_, err = v.GetUint64([]byte(keyVoteTerm))
		require.ErrorContains(t, err, "not found")
		_, err = v.Get([]byte(keyVoteCandidate))
		require.ErrorContains(t, err, "not found")
		vote(v, 7, "c")
		require.NoError(t, v.SetUint64([]byte("CurrentTerm"), 9))
		require.NoError(t, store.Close())

		store, err = Open(kind, dir, nil)
		require.NoError(t, err)
		require.Equal(t, cast{7, "c"}, lastVote(t, NewVotes(store.Stable)))
		term, err := NewVotes(store.Stable).GetUint64([]byte("CurrentTerm"))
		require.NoError(t, err)
		require.Equal(t, uint64(9), term)
		require.NoError(t, store.Close())
	}
}

func TestCandidateWithoutTermIsRefused(t *testing.T) {
	require.Error(t, NewVotes(raft.NewInmemStore()).Set([]byte(keyVoteCandidate), []byte("a")))
}
