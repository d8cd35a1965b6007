package client

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// setClock is a clock that the test sets.
type setClock struct{ now engine.Instant }

func (c *setClock) Now() engine.Instant { return c.now }

// A direct call that the Redis nodes do not answer begins a detour, and the detour ends after
// detourTime: from then on calls are direct again.
func TestDetourBeginsAndEnds(t *testing.T) {
	service, err := remote.New([]string{"127.0.0.1:1"}, remote.Config{})
	require.NoError(t, err)
	defer service.Close()
	e := newRedisLocks(service, config{logger: slog.New(slog.DiscardHandler), redis: func(string) *redis.Options {
		return &redis.Options{}
	}})
	clock := &setClock{now: engine.NewInstant(time.Unix(1000, 0), time.Hour)}
	e.clock = clock
	nodes := &redlockadapter.Backend{}
	e.direct.Store(&direct{backend: nodes})
	lock := []fencing.Resource{"a"}

	require.Same(t, nodes, e.backend())
	for _, no := range []error{engine.ErrHeld, engine.ErrVersion, engine.ErrTaken} {
		require.False(t, e.startDetour(t.Context(), lock, no), "%v: the nodes have answered", no)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, e.startDetour(ended, lock, engine.ErrUnavailable), "the caller has left")
	require.Same(t, nodes, e.backend())

	for _, yes := range []error{engine.ErrUnavailable, engine.ErrUncertain} {
		require.True(t, e.startDetour(t.Context(), lock, yes))
		require.Nil(t, e.backend(), "calls go through the service")
		clock.now = clock.now.Add(detourTime - time.Millisecond)
		require.Nil(t, e.backend())
		clock.now = clock.now.Add(time.Millisecond)
		require.Same(t, nodes, e.backend(), "the detour has ended")
	}
}
