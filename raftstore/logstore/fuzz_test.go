package logstore

import (
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// FuzzVote checks that a vote on disk is read as it was written, and that a damaged one
// is an error and not another vote.
func FuzzVote(f *testing.F) {
	f.Add(uint64(7), []byte("n1"), []byte{0, 0, 0, 0, 0, 0, 0, 7, 'n'})
	f.Add(uint64(0), []byte(""), []byte{1})
	f.Fuzz(func(t *testing.T, term uint64, candidate, stored []byte) {
		store := raft.NewInmemStore()
		votes := NewVotes(store)
		require.NoError(t, votes.SetUint64([]byte(keyVoteTerm), term))
		require.NoError(t, votes.Set([]byte(keyVoteCandidate), candidate))
		gotTerm, err := votes.GetUint64([]byte(keyVoteTerm))
		require.NoError(t, err)
		require.Equal(t, term, gotTerm)
		got, err := votes.Get([]byte(keyVoteCandidate))
		require.NoError(t, err)
		require.Equal(t, string(candidate), string(got))

		require.NoError(t, store.Set([]byte(keyVote), stored))
		_, got, err = votes.vote()
		require.Equal(t, len(stored) < 8, err != nil)
		if err == nil {
			require.Equal(t, string(stored[8:]), string(got))
		}
	})
}
