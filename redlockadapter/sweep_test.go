package redlockadapter_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// Sweep removes the records of idle locks, and the data of former lives. Tokens keep
// growing after that.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		f.config.IdleCounters = 3 * time.Minute
		f.init(t)
		b, ctx := f.backend(t), t.Context()
		idle := acquireAlone(t, b, "idle")
		advance(time.Second) // it is on all nodes
		require.NoError(t, b.Release(ctx, idle))
		held := acquireAlone(t, b, "held")
		renew := func(d time.Duration) {
			for end := now().Add(d); now().Before(end); advance(virtualTTL / 2) {
				require.NoError(t, b.Renew(ctx, []Held{held})[0])
			}
		}
		renew(time.Minute)
		require.NoError(t, b.Sweep(ctx))
		require.Len(t, f.nodes[0].mini.Keys(), 4, "the state, the life and both records")
		renew(3 * time.Minute)
		require.NoError(t, b.Sweep(ctx))
		require.Len(t, f.nodes[0].mini.Keys(), 3, "the idle record was removed")
		requireHolder(t, b, "held", held.Token)
		require.True(t, acquireAlone(t, b, "idle").Token.Newer(idle.Token))

		f.nodes[0].restart(t, true)
		advance(2 * time.Second) // the connections are made again
		require.NoError(t, b.Sweep(ctx))
		require.Equal(t, 2, countStates(f.nodes[0]), "the state of the former life is needed until the node votes")
		renew(2 * virtualTTL)
		require.Len(t, live(t, b), 3)
		require.NoError(t, b.Sweep(ctx))
		require.Len(t, f.nodes[0].mini.Keys(), 3, "the state, the life and the lease, which the node took back")
		require.Len(t, live(t, b), 3, "the state of the current life stays")
		requireHolder(t, b, "held", held.Token)
	})
}

// A sweep of many records takes long. The servers are checked over new connections meanwhile, once a
// second, and Close ends the sweep.
func TestChecksDoNotWaitForASweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 1)
		f.init(t)
		b := f.backend(t)
		n := f.nodes[0]
		n.mu.Lock()
		n.huge, n.delay = true, 50*time.Millisecond
		n.mu.Unlock()
		advance(10*time.Minute - 2*time.Second)
		for range 5 {
			before, connections := n.countSweeps(), n.mini.TotalConnectionCount()
			advance(2 * time.Second)
			require.Greater(t, n.mini.TotalConnectionCount(), connections)
			if before > 0 {
				require.Greater(t, n.countSweeps(), before, "the sweep takes longer")
			}
		}
		before := n.countSweeps()
		require.NotZero(t, before)
		require.NoError(t, b.Close(t.Context()))
		advance(2 * time.Second)
		require.LessOrEqual(t, n.countSweeps(), before+1, "one may be on the way")
	})
}

// countStates counts the states on a node, in all lives.
func countStates(n *virtualNode) (count int) {
	for _, key := range n.mini.Keys() {
		if strings.HasSuffix(key, ":node") {
			count++
		}
	}
	return count
}

// The keeper of a Backend sweeps periodically.
func TestKeeperSweeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 1)
		f.config.IdleCounters = time.Minute
		f.init(t)
		b := f.backend(t)
		require.NoError(t, b.Release(t.Context(), acquireAlone(t, b, "a")))
		require.Len(t, f.nodes[0].mini.Keys(), 3)
		advance(11 * time.Minute)
		require.Len(t, f.nodes[0].mini.Keys(), 2)
		requireHolder(t, b, "a", fencing.None)
	})
}

// Processes that do not live for long sweep too, from time to time.
func TestShortLivedProcessesSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 1)
		f.config.IdleCounters = time.Minute
		f.init(t)
		b := f.backend(t)
		require.NoError(t, b.Release(t.Context(), acquireAlone(t, b, "a")))
		for processes := 0; len(f.nodes[0].mini.Keys()) == 3; processes++ {
			require.Less(t, processes, 200, "they have lived for more than three hours")
			advance(time.Minute)
			require.NoError(t, b.Close(t.Context()))
			b = f.backend(t)
		}
		requireHolder(t, b, "a", fencing.None)
	})
}
