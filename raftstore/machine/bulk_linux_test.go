package machine

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// BenchmarkBulk measures single commands that affect 100,000 leases, as many waiters as a lock
// can have by default, or as many permits as a lock can have. The commands of others wait
// meanwhile. cpu-ms is the processor time, which other programs on the machine do not affect much.
func BenchmarkBulk(b *testing.B) {
	const many, queue = 100_000, 20_000
	id := engine.SessionID{1}
	toRedis := engine.Policy{Prefix: "r/", Mode: engine.Efficiency}
	name := func(i int) fencing.Resource { return fencing.Resource(fmt.Sprintf("r/%06d", i)) }
	acquire := func(m *Machine, nonce int, q engine.Request) {
		q.Nonce, q.Wait = engine.Nonce(nonce+1), true
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: q})
	}
	writer := func(m *Machine, nonce int, name fencing.Resource) {
		acquire(m, nonce, engine.Request{Resources: []fencing.Resource{name}})
	}
	leases := func(m *Machine) {
		for i := range many {
			writer(m, i, name(i))
		}
	}
	behind := func(n int, q engine.Request) func(m *Machine) {
		return func(m *Machine) {
			writer(m, 0, "r/a")
			writer(m, 1, "r/b")
			for i := range n {
				acquire(m, i+2, q)
			}
		}
	}
	release := &Release{Session: id, Incarnation: 1, Nonce: 1}
	reader := engine.Request{Kind: engine.Shared, Resources: []fencing.Resource{"r/a"}}
	for _, c := range []struct {
		name    string
		prepare func(m *Machine)
		command Command
	}{
		{"grant readers", behind(queue, reader), release},
		{"pass readers of a set", behind(queue, engine.Request{Kind: engine.Shared, Resources: []fencing.Resource{"r/a",
			"r/b"}}), release},
		{"grant permits", behind(engine.MaxPermits, engine.Request{Kind: engine.Permit, Permits: engine.MaxPermits,
			Resources: []fencing.Resource{"r/a"}}), release},
		{"begin a migration with waiters", behind(queue, reader), &SetPolicy{Policy: toRedis}},
		{"begin a migration with leases", leases, &SetPolicy{Policy: toRedis}},
		{"begin a migration now", leases, &SetPolicy{Policy: toRedis, Now: true}},
		{"break holders", func(m *Machine) {
			leases(m)
			m.Apply(&SetPolicy{Policy: toRedis, Now: true})
		}, &EndRequests{Max: MaxEndRequests}},
		{"finish a migration", func(m *Machine) {
			leases(m)
			m.Apply(&SetPolicy{Policy: toRedis})
		}, &FinishMigration{Prefix: "r/", Version: 1}},
		{"end all sessions", leases, &EndSessions{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m := opened(id)
				c.prepare(m)
				require.NotZero(b, m.Count().Holders)
				b.StartTimer()
				runtime.LockOSThread()
				before := threadTime()
				m.Apply(c.command)
				b.ReportMetric(float64((threadTime()-before).Microseconds())/1000, "cpu-ms")
				runtime.UnlockOSThread()
			}
		})
	}
}

// threadTime returns the processor time of the current thread.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
