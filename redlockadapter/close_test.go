package redlockadapter_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// Close ends every goroutine and connection, even if nodes are down. This test is not
// parallel, since it looks at all goroutines of the process.
func TestCloseLeaksNothing(t *testing.T) {
	f := startFleet(t, 5).init(t)
	ctx := testContext(t)
	b := f.backend(t)
	s := open(t, b, longTTL)
	_, err := s.Acquire(ctx, request(1, "a"))
	require.NoError(t, err)
	waiting, cancel := context.WithCancel(ctx)
	canceled := make(chan error)
	go func() {
		r := request(2, "a")
		r.Wait = true
		_, err := s.Acquire(waiting, r)
		canceled <- err
	}()
	waitFor(t, func() bool {
		status, err := b.Inspect(ctx, "a")
		return err == nil && len(status.Waiters) == 1
	})
	f.servers[0].Pause()
	f.servers[1].Kill()
	cancel()
	require.ErrorIs(t, <-canceled, context.Canceled)
	require.NoError(t, b.Close(ctx))
	_, err = b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: longTTL})
	require.ErrorIs(t, err, engine.ErrUnavailable)
	_, err = b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "b"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.NoError(t, b.Close(ctx), "closed twice")
	waitFor(t, func() bool {
		all := goroutines()
		return !strings.Contains(all, "redlockadapter.(") && !strings.Contains(all, "redisconn.(")
	}, "a goroutine leaks")
	f.servers[0].Resume()
	require.NoError(t, f.servers[1].Start())
	for i := range f.servers[2:] {
		c := f.client(t, i+2)
		waitFor(t, func() bool { return infoField(t, c, "connected_clients") == "1" }, "a connection leaks")
	}
}

func goroutines() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
