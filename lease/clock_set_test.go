package lease_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// A reading of Go's clock that has a monotonic part is compared by that part
// alone: whoever sets the clock of the machine changes no difference.
func TestClocksCannotBeSet(t *testing.T) {
	for name, clock := range map[string]lease.Clock{"system": lease.SystemClock(), "monotonic": lease.MonotonicClock()} {
		require.Contains(t, clock.Now().Time().String(), " m=", name)
		require.Contains(t, clock.Now().Add(1).Time().String(), " m=", name)
	}
}
