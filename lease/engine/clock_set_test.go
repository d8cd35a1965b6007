package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// Go compares times with a monotonic reading by that reading alone, so setting the
// machine's clock does not change a difference.
func TestClocksCannotBeSet(t *testing.T) {
	for name, clock := range map[string]engine.Clock{"system": engine.SystemClock(),
		"monotonic": engine.MonotonicClock()} {
		require.Contains(t, clock.Now().Time().String(), " m=", name)
		require.Contains(t, clock.Now().Add(1).Time().String(), " m=", name)
	}
}
