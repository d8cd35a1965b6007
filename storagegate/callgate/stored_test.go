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
