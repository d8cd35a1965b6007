package redlockadapter_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// Close ends every goroutine and connection, whatever the nodes do. This test is
// not parallel: it looks at all goroutines of the process.
func TestCloseLeavesNothing(t *testing.T) {
	f := startFleet(t, 5).init(t)
	ctx := patient(t)
	for range 3 {
		b, err := redlockadapter.New(ctx, f.config)
		require.NoError(t, err)
		s := open(t, b, longTTL)
		_, err = s.Acquire(ctx, request(1, "a"))
		require.NoError(t, err)
		waiting, cancel := context.WithCancel(ctx)
		gone := make(chan error)
		go func() {
			r := request(2, "a")
			r.Wait = true
			_, err := s.Acquire(waiting, r)
			gone <- err
		}()
		waitFor(t, func() bool {
			status, err := b.Inspect(ctx, "a")
			return err == nil && len(status.Waiters) == 1
		})
		f.servers[0].Pause()
		f.servers[1].Kill()
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.NoError(t, b.Close(ctx))
		_, err = b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: longTTL})
		require.ErrorIs(t, err, engine.ErrUnavailable)
		_, _, err = b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "b"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NoError(t, b.Close(ctx), "closed twice")
		waitFor(t, func() bool { return !strings.Contains(goroutines(), "redlockadapter.(") }, "a goroutine is left")
		f.servers[0].Resume()
		require.NoError(t, f.servers[1].Start())
	}
	for i := range f.servers[2:] {
		c := f.client(t, i+2)
		waitFor(t, func() bool { return infoField(t, c, "connected_clients") == "1" }, "a connection is left")
	}
	b := f.backend(t)
	held, _, err := b.Acquire(ctx, engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err, "what the session held was released")
	require.NoError(t, b.Release(ctx, held))
}

func goroutines() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
