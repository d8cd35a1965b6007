package machine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// BenchmarkBulk measures single commands that affect 100,000 leases, as many waiters as a lock
// can have by default, or as many permits as a lock can have. The commands of others wait
// meanwhile.
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
		{"pass readers of a set", behind(queue, engine.Request{Kind: engine.Shared, Resources: []fencing.Resource{"r/a", "r/b"}}), release},
		{"grant permits", behind(engine.MaxPermits, engine.Request{Kind: engine.Permit, Permits: engine.MaxPermits, Resources: []fencing.Resource{"r/a"}}), release},
		{"begin a migration with waiters", behind(queue, reader), &SetPolicy{Policy: toRedis}},
		{"begin a migration with leases", leases, &SetPolicy{Policy: toRedis}},
		{"begin a migration now", leases, &SetPolicy{Policy: toRedis, Now: true}},
		{"finish a migration", func(m *Machine) { leases(m); m.Apply(&SetPolicy{Policy: toRedis}) }, &FinishMigration{Prefix: "r/", Version: 1}},
		{"end all sessions", leases, &EndSessions{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m := opened(id)
				c.prepare(m)
				require.NotZero(b, m.Count().Holders)
				b.StartTimer()
				m.Apply(c.command)
			}
		})
	}
}

// The time of a release is proportional to the number of waiters that it passes or grants. With
// a search among the waiters or the slots for each of them, these take a thousand times longer.
func TestManyWaitersTakeLinearTime(t *testing.T) {
	id := engine.SessionID{1}
	for name, q := range map[string]engine.Request{
		"readers of a set": {Kind: engine.Shared, Resources: []fencing.Resource{"a", "b"}},
		"permits":          {Kind: engine.Permit, Permits: engine.MaxPermits, Resources: []fencing.Resource{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := opened(id)
			for i, lock := range []fencing.Resource{"a", "b"} {
				m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{lock}}})
			}
			for i := range 60_000 {
				q.Nonce, q.Wait = engine.Nonce(i+3), true
				m.Apply(&Acquire{Session: id, Incarnation: 1, Request: q})
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			m.Apply(&Release{Session: id, Incarnation: 1, Nonce: 1})
			require.Less(t, time.Since(start), 5*time.Second)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
			if q.Kind == engine.Permit {
				require.Equal(t, 1+engine.MaxPermits, m.Count().Holders)
			}
		})
	}
}
