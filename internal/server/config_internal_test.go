package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// The default clock counts the time that the machine was suspended. With the other
// clock, a member would miscount the TTLs of leases on Redis after a suspend.
func TestDefaultClockCountsSuspend(t *testing.T) {
	c, err := Config{}.filled()
	require.NoError(t, err)
	require.Equal(t, engine.SystemClock(), c.Clock)
	require.NotEqual(t, engine.MonotonicClock(), c.Clock)
}
