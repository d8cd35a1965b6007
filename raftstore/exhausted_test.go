package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// Without tokens nothing is granted, and the caller is told for certain.
func TestNoTokensAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		s := openSession(t, c.backend(), time.Minute)
		result, _, err := c.leader().propose(testContext(t), &machine.RaiseFloor{By: fencing.MaxToken})
		require.NoError(t, err)
		require.Equal(t, machine.Done, result.Code)
		_, err = s.Acquire(testContext(t), lockRequest(1, "a"))
		require.ErrorIs(t, err, lease.ErrUnavailable)
		require.NotErrorIs(t, err, lease.ErrUncertain)
	})
}
