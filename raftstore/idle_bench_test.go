package raftstore

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// holdLeases acquires this many locks in one session.
func holdLeases(b *testing.B, s engine.Session, leases int) {
	const callers = 256
	errs := make(chan error, callers)
	for caller := range callers {
		go func() {
			for i := caller; i < leases; i += callers {
				_, err := s.Acquire(context.Background(), lockRequest(engine.Nonce(i+1),
					fencing.Resource(fmt.Sprintf("tenant/orders/%06d", i))))
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range callers {
		require.NoError(b, <-errs)
	}
}

// BenchmarkKeepAlive reports the CPU usage of three nodes on real disks while one session
// is renewed three times per second. It includes heartbeats and proofs of leadership.
//
//	go test -run '^$' -bench KeepAlive -benchtime 15x ./raftstore
func BenchmarkKeepAlive(b *testing.B) {
	const pause = time.Second / 3
	for _, leases := range []int{0, 1, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			c := startTCP(b, 3, DefaultLogStore, slowTimeouts)
			s := openSession(b, c.backend(), time.Hour)
			holdLeases(b, s, leases)
			c.agree()
			heapInUse() // collect the garbage of the setup before measuring
			before, began := cpuTime(b), engine.MonotonicClock().Now()
			b.ResetTimer()
			for range b.N {
				_, err := s.Renew(context.Background())
				require.NoError(b, err)
				pass(pause)
			}
			b.StopTimer()
			used, took := cpuTime(b)-before, engine.MonotonicClock().Now().Since(began)
			b.ReportMetric(100*used.Seconds()/took.Seconds(), "%cpu")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/renewal")
			require.Equal(b, leases, c.leader().Status().Counts.Holders)
		})
	}
}

// BenchmarkRenew measures a renewal, whose cost must not depend on the number of leases in
// the session.
func BenchmarkRenew(b *testing.B) {
	for _, leases := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			c := startMemory(b, 1)
			s := openSession(b, c.backend(), time.Hour)
			holdLeases(b, s, leases)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := s.Renew(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
