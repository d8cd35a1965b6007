package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

// A Redis node that accepts connections and does not answer is a missing vote: a client
// connects, and takes, keeps and releases leases without it.
func TestHungRedisNode(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	before, _ := s.dial()
	held, err := before.Acquire(testserver.Context(t), "fast/held")
	require.NoError(t, err)
	s.redis[1].Pause()
	t.Cleanup(s.redis[1].Resume)
	began := time.Now()
	after, _ := s.dial()
	t.Logf("connected after %v", time.Since(began).Round(time.Millisecond))
	require.NoError(t, held.Renew(testserver.Context(t)))
	require.NoError(t, held.Release(testserver.Context(t)))
	for _, c := range []*lease.Client{before, after} {
		for range 3 {
			began := time.Now()
			l, err := c.TryAcquire(testserver.Context(t), "fast/a")
			require.NoError(t, err)
			require.NoError(t, l.Release(testserver.Context(t)))
			t.Logf("acquired and released in %v", time.Since(began).Round(time.Millisecond))
		}
	}
}
