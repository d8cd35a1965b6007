package machine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// BenchmarkRandomNonces measures the end of an attempt in a session that has ended 30,000
// attempts with nonces in random order.
func BenchmarkRandomNonces(b *testing.B) {
	id := engine.SessionID{1}
	m := opened(id)
	random := rand.New(rand.NewPCG(1, 2))
	var low uint64
	release := func() {
		low += 3
		m.Apply(&Release{Session: id, Incarnation: 1, Nonce: engine.Nonce(low + random.Uint64N(90_000))})
	}
	for range 30_000 {
		release()
	}
	b.ReportAllocs()
	for b.Loop() {
		release()
	}
	b.ReportMetric(float64(len(m.sessions[id].ended)), "ranges")
}

// TestManyNonces shows that the memory for ended nonces is bounded, and that no attempt that
// has ended is granted again, also in a machine that was restored.
func TestManyNonces(t *testing.T) {
	id := engine.SessionID{1}
	m := opened(id)
	acquire := func(nonce engine.Nonce) Result {
		r, _ := m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: nonce,
			Resources: []fencing.Resource{"a"}}})
		return r
	}
	require.Equal(t, Granted, acquire(3).Code)
	const attempts = 3 * MaxEnded
	last := engine.Nonce(2 * attempts)
	for nonce := engine.Nonce(5); nonce <= last; nonce += 2 {
		require.Equal(t, Held, acquire(nonce).Code)
	}
	require.NoError(t, m.check())
	require.Len(t, m.sessions[id].ended, MaxEnded)
	restored, err := Restore(m.Snapshot())
	require.NoError(t, err)
	m = restored
	require.Equal(t, Granted, acquire(3).Code, "it is live")
	m.Apply(&Release{Session: id, Incarnation: 1, Nonce: 3})
	for nonce := engine.Nonce(3); nonce <= last; nonce += 2 {
		r := acquire(nonce)
		require.Contains(t, []Code{Ended, LowNonce}, r.Code, "attempt %d has ended", nonce)
	}
	r := acquire(4)
	require.Equal(t, LowNonce, r.Code)
	require.Equal(t, engine.Nonce(2*MaxEnded*2-1), r.Nonce)
	require.ErrorContains(t, r.Refusal(&engine.Request{Nonce: 4}), "nonce 4 must be above")
	require.Equal(t, Granted, acquire(last+1).Code)
}
