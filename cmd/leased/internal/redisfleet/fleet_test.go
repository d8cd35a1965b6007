package redisfleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/redisfleet"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// Both kinds grant leases, one after the other, with growing tokens.
func TestFleetGrants(t *testing.T) {
	for _, kind := range []redisfleet.Kind{redisfleet.Servers, redisfleet.Embedded} {
		t.Run(string(kind), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			fleet, err := redisfleet.Start(ctx, kind, t.TempDir(), 5)
			require.NoError(t, err)
			defer fleet.Stop()
			require.Equal(t, kind, fleet.Kind)
			config := redlockadapter.Config{NodeTimeout: 10 * time.Second} // imitations are slow under the race detector
			for _, addr := range fleet.Addrs {
				config.Nodes = append(config.Nodes, &redis.Options{Addr: addr})
			}
			require.NoError(t, redlockadapter.Init(ctx, config, 41))
			backend, err := redlockadapter.New(ctx, config)
			require.NoError(t, err)
			defer func() { require.NoError(t, backend.Close(context.Background())) }()
			client, err := lease.New(backend)
			require.NoError(t, err)
			defer func() { require.NoError(t, client.Close(context.Background())) }()
			first, err := client.Acquire(ctx, "report/may", lease.WithTTL(200*time.Millisecond), lease.WithoutRenewal())
			require.NoError(t, err)
			require.Greater(t, int(first.Token()), 41)
			second, err := client.Acquire(ctx, "report/may") // the first runs out
			require.NoError(t, err)
			require.Greater(t, second.Token(), first.Token())
		})
	}
}

func TestNoFleet(t *testing.T) {
	fleet, err := redisfleet.Start(t.Context(), redisfleet.None, t.TempDir(), 5)
	require.NoError(t, err)
	require.Empty(t, fleet.Addrs)
	_, err = redisfleet.ParseKind("some")
	require.ErrorContains(t, err, "redis (some) must be auto, server, embedded or none")
}

// Without the program the embedded ones are taken, and it is said why.
func TestEmbeddedWhereNothingIsInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fleet, err := redisfleet.Start(t.Context(), redisfleet.Auto, t.TempDir(), 1)
	require.NoError(t, err)
	defer fleet.Stop()
	require.Equal(t, redisfleet.Embedded, fleet.Kind)
	require.Equal(t, "redis-server is not installed", fleet.Why)
	_, err = redisfleet.Start(t.Context(), redisfleet.Servers, t.TempDir(), 1)
	require.ErrorContains(t, err, "install it")
}
