package client_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
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

// A client that only observes and inspects locks does so through the service when it alone is
// cut off from Redis.
func TestObserverIsCutOffFromRedis(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	connections := &breaker{}
	observer, _ := s.dial(connections.option())
	holder, _ := s.dial()
	seen := make(chan lease.Leader, 100)
	ctx, cancel := context.WithTimeout(testserver.Context(t), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- observer.Observe(ctx, "fast/a", func(l lease.Leader) { seen <- l }) }()
	require.Zero(t, testserver.Receive(t, seen))
	connections.cut()
	l, err := holder.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	select {
	case now := <-seen:
		require.Equal(t, l.Token(), now.Token)
	case <-ctx.Done():
		require.Fail(t, "the observer has seen nothing")
	}
	status, err := observer.Inspect(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	require.NoError(t, observer.Break(testserver.Context(t), "fast/a", l.Token()))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A client that hangs while it connects to the nodes of a new fleet acquires through the service.
func TestHungConnectToANewFleet(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	hangs := make(chan struct{})
	fleet := startRedis(t, 3)
	c, _ := s.dial(client.WithRedis(func(address string) *redis.Options {
		return &redis.Options{Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if slices.Contains(fleetOf(fleet).Addresses, address) {
				<-hangs
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
	}))
	t.Cleanup(func() { close(hangs) }) // before the client is closed
	held, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	s.setFleet(fleetOf(fleet), false)
	<-held.Done() // the client knows the new fleet
	l, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.NoError(t, l.Release(testserver.Context(t)))
	require.True(t, usesRedis(t, fleet))
}
