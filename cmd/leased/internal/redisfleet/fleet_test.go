package redisfleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/redisfleet"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

func TestFleetGrantsLeases(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fleet, err := redisfleet.Start(ctx, redisfleet.Servers, t.TempDir(), 5)
	require.NoError(t, err)
	defer fleet.Stop()
	config := redlockadapter.Config{NodeTimeout: 10 * time.Second}
	for _, addr := range fleet.Addrs {
		config.Nodes = append(config.Nodes, &redis.Options{Addr: addr})
	}
	require.NoError(t, redlockadapter.Init(ctx, config, fencing.None))
	backend, err := redlockadapter.New(ctx, config)
	require.NoError(t, err)
	defer func() { require.NoError(t, backend.Close(context.Background())) }()
	client, err := lease.New(backend)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close(context.Background())) }()
	first, err := client.Acquire(ctx, "report/may")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(1), first.Token())
	require.NoError(t, first.Release(ctx))
	second, err := client.Acquire(ctx, "report/may")
	require.NoError(t, err)
	require.Greater(t, second.Token(), first.Token())
}

func TestKinds(t *testing.T) {
	fleet, err := redisfleet.Start(t.Context(), redisfleet.None, t.TempDir(), 5)
	require.NoError(t, err)
	require.Empty(t, fleet.Addrs)
	_, err = redisfleet.ParseKind("some")
	require.ErrorContains(t, err, "redis (some) must be auto, server or none")
}

func TestWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fleet, err := redisfleet.Start(t.Context(), redisfleet.Auto, t.TempDir(), 1)
	require.NoError(t, err)
	require.Empty(t, fleet.Addrs)
	require.ErrorContains(t, fleet.Missing, "redis-server is not installed")
	_, err = redisfleet.Start(t.Context(), redisfleet.Servers, t.TempDir(), 1)
	require.ErrorContains(t, err, "apt-get install redis-server")
}
