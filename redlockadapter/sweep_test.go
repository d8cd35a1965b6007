package redlockadapter_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// Sweep removes the records of locks that were not used for long, and data of
// former lives. Tokens go on above what was removed.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		f.config.IdleCounters = 3 * time.Minute
		f.init(t)
		b, ctx := f.backend(t), t.Context()
		idle := acquireFor(t, b, "idle")
		require.NoError(t, b.Release(ctx, idle))
		held := acquireFor(t, b, "held")
		renew := func(d time.Duration) {
			for end := now().Add(d); now().Before(end); pass(virtualTTL / 2) {
				require.NoError(t, b.Renew(ctx, []Held{held})[0])
			}
		}
		renew(time.Minute)
		require.NoError(t, b.Sweep(ctx))
		require.Len(t, f.nodes[0].mini.Keys(), 4, "the state, the name of its life and both locks")
		renew(3 * time.Minute)
		require.NoError(t, b.Sweep(ctx))
		require.Len(t, f.nodes[0].mini.Keys(), 3, "the idle record is gone")
		requireHolder(t, b, "held", held.Token)
		require.True(t, acquireFor(t, b, "idle").Token.Newer(idle.Token))

		f.nodes[0].restart(t, true)
		pass(2 * time.Second) // connections are made again
		require.NoError(t, b.Sweep(ctx))
		require.Equal(t, 2, states(f.nodes[0]), "the state that a former life left is needed until the node votes")
		renew(2 * virtualTTL)
		require.Len(t, live(t, b), 3)
		require.NoError(t, b.Sweep(ctx))
		require.Len(t, f.nodes[0].mini.Keys(), 2, "the state and the name of its life")
		require.Len(t, live(t, b), 3, "the state of this life stays")
		requireHolder(t, b, "held", held.Token)
	})
}

// states counts the states of all lives on a node.
func states(n *virtualNode) (count int) {
	for _, key := range n.mini.Keys() {
		if strings.HasSuffix(key, ":node") {
			count++
		}
	}
	return count
}

// The Backend sweeps by itself.
func TestBackendsSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 1)
		f.config.IdleCounters = time.Minute
		f.init(t)
		b := f.backend(t)
		require.NoError(t, b.Release(t.Context(), acquireFor(t, b, "a")))
		require.Len(t, f.nodes[0].mini.Keys(), 3)
		pass(21 * time.Minute)
		require.Len(t, f.nodes[0].mini.Keys(), 2)
		requireHolder(t, b, "a", fencing.None)
	})
}
