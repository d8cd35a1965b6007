package metrics

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// BenchmarkPair measures what a leader records for an acquire and a release in log entries
// of 32 operations. The processor time says more than the duration on a busy machine.
// BenchmarkMetricsCost of internal/server compares whole members.
//
//	go test -run '^$' -bench Pair -benchtime 3000000x -cpu 1 -count 5 ./internal/server/metrics
func BenchmarkPair(b *testing.B) {
	m := New("test", "")
	hooks := m.RaftHooks()
	granted, released := []machine.Event{{Type: machine.EventGranted}}, []machine.Event{{Type: machine.EventReleased}}
	before := processorTime(b)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for i := 0; p.Next(); i++ {
			acquire := m.StartAcquire()
			hooks.Applied(granted)
			acquire.Granted(engine.Correctness)
			hooks.Applied(released)
			if i%16 == 0 {
				hooks.Committed(32, time.Millisecond)
				hooks.Stored(time.Millisecond)
			}
		}
	})
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
