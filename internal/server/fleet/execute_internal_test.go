package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// A floor that an operator provides does not lower what a node reports.
func TestProvidedFloorLowersNothing(t *testing.T) {
	t.Parallel()
	e := recovery.Evidence{Version: 7, Ceiling: 900}
	for floor, want := range map[fencing.Token]fencing.Token{fencing.None: 900, 5: 900, 1000: 1000} {
		require.Equal(t, want, reconcile(3, e, floor).Ceiling)
	}
}
