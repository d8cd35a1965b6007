package lease_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
)

// The benchmarks measure the client alone, on the memory backend. Run with:
// go test -run '^$' -bench . ./lease

func newBenchClient(b testing.TB) *lease.Client {
	memory, err := memory.New()
	if err != nil {
		b.Fatal(err)
	}
	c, err := lease.New(memory)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// TestAcquireReleaseAllocations bounds the allocations of an acquire and a release, the memory
// engine's included. Of them, six are the client's: the call with its settings, the names,
// a context and its cancel function, the lease, and the context of the release.
func TestAcquireReleaseAllocations(t *testing.T) {
	c := newBenchClient(t)
	ctx := context.Background()
	pair := func() {
		l, err := c.TryAcquire(ctx, "a")
		require.NoError(t, err)
		require.NoError(t, l.Release(ctx))
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, pair), 11.0)
}

func BenchmarkAcquireRelease(b *testing.B) {
	c := newBenchClient(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.TryAcquire(ctx, "a")
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// The time of an acquire must not depend on the number of leases held.
func BenchmarkAcquireManyHeld(b *testing.B) {
	for _, held := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			c := newBenchClient(b)
			ctx := context.Background()
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range held {
				if _, err := c.TryAcquire(ctx, fencing.Resource(fmt.Sprint("held/", i))); err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ResetTimer()
			for b.Loop() {
				l, err := c.TryAcquire(ctx, "a")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
			if held > 0 {
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(held), "B/lease")
			}
		})
	}
}
