package metrics

import (
	"testing"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// BenchmarkPair measures what a leader records for an acquire and a release in log entries
// of 32 operations, by concurrent callers. BenchmarkMetricsCost of internal/server
// compares whole members.
//
//	go test -run '^$' -bench Pair -count 5 ./internal/server/metrics
func BenchmarkPair(b *testing.B) {
	m := New("test")
	hooks := m.RaftHooks()
	granted, released := []machine.Event{{Type: machine.EventGranted}}, []machine.Event{{Type: machine.EventReleased}}
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
}
