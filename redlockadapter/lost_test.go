package redlockadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// A session that is neither renewed nor closed loses its lock after a TTL. Those
// who wait in the same process get it, also if none of them waits for so long.
func TestALostHolderOfTheSameProcess(t *testing.T) {
	const ttl = 400 * time.Millisecond
	limit, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	f := startFleet(t, 3)
	f.init(t)
	b := f.backend(t)
	gone, err := open(t, b, ttl).Acquire(limit, request(1, "a"))
	require.NoError(t, err)
	next := open(t, b, time.Second)
	for nonce := lease.Nonce(1); ; nonce++ {
		waiting := request(nonce, "a")
		waiting.Wait = true
		ctx, cancel := context.WithTimeout(limit, ttl/2)
		grant, err := next.Acquire(ctx, waiting)
		cancel()
		if err == nil {
			require.Greater(t, grant.Token, gone.Token)
			return
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, limit.Err(), "nobody gets the lock")
	}
}
