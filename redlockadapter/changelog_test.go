package redlockadapter_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/logtest"
	"github.com/leased-project/leased/lease/engine"
)

// A node that goes away and comes back without its data has one line for each change.
func TestChangesOfNodesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		log := logtest.New(slog.LevelInfo)
		f.config.Logger = log.Logger()
		b := f.backend(t)
		advance(10 * time.Second)
		require.Empty(t, log.Lines(""), "nothing has changed")
		f.nodes[1].stop()
		advance(time.Minute)
		line := log.Once(t, "Redis node is unreachable")
		require.Equal(t, slog.LevelWarn, line.Level)
		require.Equal(t, f.config.Nodes[1].Addr, line.Values["node"])
		require.NotEmpty(t, line.Values["error"])
		f.nodes[1].restart(t, false)
		advance(2 * virtualTTL)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
		for _, message := range []string{"Redis node is reachable again", "Redis node is empty and does not vote",
			"Redis node votes again"} {
			require.Equal(t, f.config.Nodes[1].Addr, log.Once(t, message).Values["node"])
		}
		require.Len(t, log.Lines(""), 4)
	})
}

// A server that becomes unusable has one line that says why, and one when it is back.
func TestRefusedNodeIsLoggedOnce(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	log := logtest.New(slog.LevelInfo)
	f.config.Logger = log.Logger()
	f.backend(t)
	c := f.client(t, 2)
	require.NoError(t, c.ConfigSet(testContext(t), "maxmemory-policy", "allkeys-lru").Err())
	waitFor(t, func() bool { return log.Count("Redis node is refused") > 0 })
	require.NoError(t, c.ConfigSet(testContext(t), "maxmemory-policy", "noeviction").Err())
	waitFor(t, func() bool { return log.Count("Redis node is reachable again") > 0 })
	require.Contains(t, log.Once(t, "Redis node is refused").Values["error"], "noeviction")
	log.Once(t, "Redis node is reachable again")
}

// Grants, waits and releases are logged at the level debug.
func TestChangesOfLeasesAreLoggedAtDebug(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		log := logtest.New(slog.LevelDebug)
		f.config.Logger = log.Logger()
		b := f.backend(t)
		want := request(1, "jobs/7")
		held, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, want)
		require.NoError(t, err)
		granted := log.Once(t, "granted")
		require.Equal(t, slog.LevelDebug, granted.Level)
		require.Equal(t, "jobs/7", granted.Values["resource"])
		require.Equal(t, "efficiency", granted.Values["mode"])
		want.Wait = true
		done := make(chan Held, 1)
		go func() {
			next, _ := b.Acquire(context.Background(), engine.NewSessionID(), virtualTTL, want)
			done <- next
		}()
		advance(time.Second)
		log.Once(t, "queued")
		require.NoError(t, b.Release(t.Context(), held))
		next := <-done
		require.NotEqual(t, fencing.None, next.Token)
		log.Once(t, "released")
		require.Len(t, log.Lines("granted"), 2)
		require.NoError(t, b.Break(t.Context(), "jobs/7", next.Token))
		log.Once(t, "broken")
	})
}

// The rounds of an acquire are reported to the Trace in its context, with the number of
// votes.
func TestRoundsAreReported(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	b := f.backend(t)
	var mu sync.Mutex
	var rounds []engine.Round
	ctx := engine.WithTrace(testContext(t), &engine.Trace{Round: func(r engine.Round) {
		mu.Lock()
		defer mu.Unlock()
		rounds = append(rounds, r)
	}})
	_, err := b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	require.NotEmpty(t, rounds)
	last := rounds[len(rounds)-1]
	require.NoError(t, last.Err)
	require.Equal(t, 3, last.Nodes)
	require.GreaterOrEqual(t, last.Accepted, 2)
	rounds = nil
	_, err = b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrHeld)
	require.ErrorIs(t, rounds[len(rounds)-1].Err, engine.ErrHeld)
	require.Less(t, rounds[len(rounds)-1].Accepted, 2) // a node that was not asked for the first lease may accept
}
