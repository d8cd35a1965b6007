package raftstore

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// A client reopens its session just as the session expires: after it registered its
// listener and before the new incarnation exists.
func TestSessionOpenedDuringExpiryIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		first := openSession(t, c.backend(), time.Minute).(*Session)
		var told atomic.Int64
		config := first.config
		config.Lost = func(engine.Nonce, error) { told.Add(1) }
		second, err := c.backend().begin(ctx, config, func(n *Node) (machine.SessionInfo, error) {
			_, _, err := n.propose(ctx, &machine.Expire{Session: config.ID, Incarnation: first.Incarnation(),
				Generation: n.leading.Load().generation})
			if err != nil {
				return machine.SessionInfo{}, err
			}
			return n.open(ctx, config)
		})
		require.NoError(t, err)
		require.NotEqual(t, first.Incarnation(), second.Incarnation())
		grant, err := second.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.NoError(t, c.backend().Break(ctx, "a", grant.Token))
		eventually(t, "the loss", func() bool { return told.Load() > 0 })
		require.NoError(t, second.Close(ctx))
		for _, n := range c.nodes {
			require.True(t, n.hub.Idle())
		}
	})
}
