package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// A member that chooses no clock has the one that goes on in suspend: by the other
// it would count the time of leases on Redis wrongly after it slept.
func TestAMemberCountsSuspendUnlessToldOtherwise(t *testing.T) {
	c, err := Config{Node: &raftstore.Node{}, Feed: NewFeed()}.filled()
	require.NoError(t, err)
	require.Equal(t, engine.SystemClock(), c.Clock)
	require.NotEqual(t, engine.MonotonicClock(), c.Clock)
}
