package memgate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// A caller cannot fill the memory with refused writes to resources of many names.
func TestRefusedNamesAreNotKept(t *testing.T) {
	gate := New[int](fencing.Rule{MaxJump: 10})
	require.ErrorIs(t, gate.Do(t.Context(), "refused", 1000, func(*int) error { return nil }), fencing.ErrJump)
	require.ErrorIs(t, gate.Enter(t.Context(), "refused", fencing.None), fencing.ErrNoToken)
	require.ErrorIs(t, gate.Reset(t.Context(), "refused", 7, 6), storagegate.ErrMarkChanged)
	_, kept := gate.cells.Load(fencing.Resource("refused"))
	require.False(t, kept)
}
