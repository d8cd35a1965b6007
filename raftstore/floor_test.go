package raftstore

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

func TestRaiseFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		n, ctx := c.leader(), testContext(t)
		s := openSession(t, c.backend(), lease.DefaultTTL)
		const above = fencing.Token(1_000_000)
		require.NoError(t, n.RaiseFloor(ctx, above))
		grant, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.True(t, grant.Token.Newer(above))
		require.NoError(t, n.RaiseFloor(ctx, 5), "a floor is never lowered")
		grant, err = s.Acquire(ctx, lockRequest(2, "b"))
		require.NoError(t, err)
		require.True(t, grant.Token.Newer(above))
		require.ErrorIs(t, n.RaiseFloor(ctx, fencing.MaxToken), lease.ErrInvalid)
		for _, other := range c.nodes {
			if other != n {
				require.ErrorIs(t, other.RaiseFloor(ctx, above+1), lease.ErrUnavailable)
			}
		}
	})
}
