package callgate_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/callgate"
)

// Marks in a bbolt file survive a restart, marks in memory do not.
func TestStoredMarksSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks.db")
	open := func(run func(guard *callgate.Guard)) {
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		defer db.Close()
		run(callgate.New(callgate.Stored(boltgate.New(db, fencing.Rule{MaxJump: 1000}))))
	}
	open(func(guard *callgate.Guard) {
		require.NoError(t, guard.Call(t.Context(), orders, fencing.None, nothing))
		require.NoError(t, guard.Call(t.Context(), orders, 34, func() error {
			mark, err := guard.Mark(t.Context(), orders)
			require.NoError(t, err)
			require.Equal(t, fencing.Token(34), mark, "the mark is stored before the call runs")
			return nil
		}))
	})
	open(func(guard *callgate.Guard) {
		ran := func() error { t.Error("a refused call ran"); return nil }
		require.ErrorIs(t, guard.Call(t.Context(), orders, 33, ran), fencing.ErrStale)
		require.ErrorIs(t, guard.Call(t.Context(), orders, fencing.None, ran), fencing.ErrNoToken)
		require.ErrorIs(t, guard.Call(t.Context(), orders, 5000, ran), fencing.ErrJump)
		require.NoError(t, guard.Call(t.Context(), orders, 34, nothing))
		require.NoError(t, guard.Enter(t.Context(), orders, 35))
	})
	inMemory := callgate.New(callgate.Memory(fencing.Rule{}))
	require.NoError(t, inMemory.Call(t.Context(), orders, 33, nothing))
}

// Two replicas of a service that have their own marks do not hold each other back:
// G1 does not hold, as docs/GUARANTEES.md says.
func TestReplicasWithTheirOwnMarksAdmitStaleCalls(t *testing.T) {
	a, b := callgate.New(callgate.Memory(fencing.Rule{})), callgate.New(callgate.Memory(fencing.Rule{}))
	var written []fencing.Token
	call := func(guard *callgate.Guard, token fencing.Token) error {
		return guard.Call(t.Context(), orders, token, func() error { written = append(written, token); return nil })
	}
	require.NoError(t, call(a, 34))
	require.NoError(t, call(b, 33), "the other replica has not seen 34")
	require.Equal(t, []fencing.Token{34, 33}, written)
}

// Replicas that share their marks admit a token in order. But a call is not part of
// the check: it can run after a newer one in the other replica.
func TestReplicasWithSharedMarksDoNotOrderCalls(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "marks.db"), 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	shared := boltgate.New(db, fencing.Rule{}) // stands for a database that both replicas use
	a, b := callgate.New(callgate.Stored(shared)), callgate.New(callgate.Stored(shared))
	var written []fencing.Token
	require.NoError(t, a.Call(t.Context(), orders, 33, func() error {
		require.NoError(t, b.Call(t.Context(), orders, 34, func() error { written = append(written, 34); return nil }))
		written = append(written, 33) // this replica was paused after its check
		return nil
	}))
	require.Equal(t, []fencing.Token{34, 33}, written)
	require.ErrorIs(t, a.Call(t.Context(), orders, 33, nothing), fencing.ErrStale, "its next call is refused")
}
