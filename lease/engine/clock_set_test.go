package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A reading of Go's clock that has a monotonic part is compared by that part
// alone: whoever sets the clock of the machine changes no difference.
func TestClocksCannotBeSet(t *testing.T) {
	for name, clock := range map[string]engine.Clock{"system": engine.SystemClock(), "monotonic": engine.MonotonicClock()} {
		require.Contains(t, clock.Now().Time().String(), " m=", name)
		require.Contains(t, clock.Now().Add(1).Time().String(), " m=", name)
	}
}
