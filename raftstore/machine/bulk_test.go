package machine

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

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
				m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: engine.Nonce(i + 1),
					Resources: []fencing.Resource{lock}}})
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
