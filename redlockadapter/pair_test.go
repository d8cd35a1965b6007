package redlockadapter_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// newPairClient returns a client of five real servers, with a session and loaded scripts.
func newPairClient(tb testing.TB) *lease.Client {
	tb.Helper()
	f := startFleet(tb, 5).init(tb)
	client, err := lease.New(f.backend(tb))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, client.Close(context.Background())) })
	pair(tb, client)
	return client
}

// pair acquires and releases a free lock.
func pair(tb testing.TB, client *lease.Client) {
	l, err := client.Acquire(tb.Context(), "pair")
	if err == nil {
		err = l.Release(tb.Context())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkPair acquires and releases a free lock of five Redis servers.
func BenchmarkPair(b *testing.B) {
	client := newPairClient(b)
	b.ReportAllocs()
	for b.Loop() {
		pair(b, client)
	}
}

// BenchmarkPairParallel does the same with many callers, which share pipelines.
func BenchmarkPairParallel(b *testing.B) {
	client := newPairClient(b)
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			pair(b, client)
		}
	})
}

// TestPairAllocations bounds the memory that an acquire and its release allocate in the
// process of the caller.
func TestPairAllocations(t *testing.T) {
	client := newPairClient(t)
	const most = 136 // 113 were measured
	least := math.Inf(1)
	for range 100 { // the once-per-second checks of the nodes allocate, too, but not during every batch
		least = min(least, testing.AllocsPerRun(5, func() { pair(t, client) }))
	}
	require.LessOrEqual(t, least, float64(most))
}
