package callgate

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func TestTurnsForgetIdleResources(t *testing.T) {
	var turns Turns
	for i := range 1000 {
		end, err := turns.Take(t.Context(), fencing.Resource(fmt.Sprint(i)))
		require.NoError(t, err)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = turns.Take(cancelled, fencing.Resource(fmt.Sprint(i)))
		require.ErrorIs(t, err, context.Canceled)
		end()
	}
	require.Empty(t, turns.lines)
}
