package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

func TestDevRedisGrantsLeases(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fleet, err := startRedis(ctx, "server", t.TempDir(), 5)
	require.NoError(t, err)
	defer fleet.stop()
	config := redlockadapter.Config{NodeTimeout: 10 * time.Second}
	for _, addr := range fleet.addrs {
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

// A node that loses its address to another process before it listens there starts at another one.
func TestDevRedisStartsAgain(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "redis-server")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+
		`echo >> "$0.starts"; [ "$(wc -l < "$0.starts")" -gt 2 ] || exit 1; exec redis-server "$@"`), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	r := &devRedis{running: ctx, cancel: cancel}
	defer r.stop()
	require.NoError(t, r.start(ctx, program, filepath.Join(dir, "node")))
	require.Len(t, r.addrs, 1)
	require.ErrorContains(t, ping(ctx, r.addrs[0], os.Getpid()), "process id", "another server is taken for the node")

	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexit 1\n"), 0o700))
	require.ErrorContains(t, r.start(ctx, program, filepath.Join(dir, "broken")), "the process has exited")
	require.Len(t, r.addrs, 1)
}

func TestDevRedisKinds(t *testing.T) {
	fleet, err := startRedis(t.Context(), "none", t.TempDir(), 5)
	require.NoError(t, err)
	require.Empty(t, fleet.addrs)
	err = (&devFlags{redis: "some"}).run(t.Context(), io.Discard)
	require.ErrorContains(t, err, "redis (some) must be auto, server or none")
}

func TestDevWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fleet, err := startRedis(t.Context(), "auto", t.TempDir(), 1)
	require.NoError(t, err)
	require.Empty(t, fleet.addrs)
	require.ErrorContains(t, fleet.missing, "redis-server is not installed")
	_, err = startRedis(t.Context(), "server", t.TempDir(), 1)
	require.ErrorContains(t, err, "apt-get install redis-server")
}
