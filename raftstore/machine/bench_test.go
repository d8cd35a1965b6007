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

// opened returns a machine with one session.
func opened(id engine.SessionID) *Machine {
	m := New()
	m.Apply(&OpenSession{Session: id, TTL: time.Minute})
	return m
}

func BenchmarkAcquireRelease(b *testing.B) {
	id := engine.SessionID{1}
	m := opened(id)
	resources := []fencing.Resource{"a"}
	b.ReportAllocs()
	var nonce engine.Nonce
	for b.Loop() {
		nonce++
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: nonce, Resources: resources,
			Wait: true}})
		m.Apply(&Release{Session: id, Incarnation: 1, Nonce: nonce})
	}
}

// BenchmarkHandoff measures a release with the grant to the next of 1,000 waiters, and the
// acquire that refills the queue.
func BenchmarkHandoff(b *testing.B) {
	id := engine.SessionID{1}
	m := opened(id)
	resources := []fencing.Resource{"a"}
	var nonce engine.Nonce
	acquire := func() {
		nonce++
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: nonce, Resources: resources,
			Wait: true}})
	}
	for range 1000 {
		acquire()
	}
	b.ReportAllocs()
	for b.Loop() {
		acquire()
		m.Apply(&Release{Session: id, Incarnation: 1, Nonce: nonce - 1000})
	}
}

// BenchmarkReaders measures a writer's release that grants 10,000 readers.
func BenchmarkReaders(b *testing.B) {
	const readers = 10_000
	id := engine.SessionID{1}
	resources := []fencing.Resource{"a"}
	for b.Loop() {
		b.StopTimer()
		m := opened(id)
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: 1, Resources: resources}})
		for i := range readers {
			m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: engine.Nonce(i + 2),
				Resources: resources, Kind: engine.Shared, Wait: true}})
		}
		b.StartTimer()
		m.Apply(&Release{Session: id, Incarnation: 1, Nonce: 1})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/readers, "ns/reader")
}

// BenchmarkPermit measures the release of one of 10,000 permits, which grants the next one.
func BenchmarkPermit(b *testing.B) {
	id := engine.SessionID{1}
	m := opened(id)
	resources := []fencing.Resource{"a"}
	var nonce engine.Nonce
	acquire := func() {
		nonce++
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: nonce, Resources: resources,
			Kind: engine.Permit, Permits: engine.MaxPermits, Wait: true}})
	}
	for range engine.MaxPermits {
		acquire()
	}
	for b.Loop() {
		acquire()
		m.Apply(&Release{Session: id, Incarnation: 1, Nonce: nonce - engine.MaxPermits})
	}
}

// BenchmarkMemory measures the memory of 100,000 held leases of 100 sessions, decoded from the log
// as in production.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesPerLease(b), "B/lease")
	}
}

// TestMemoryPerLease bounds that memory. It counts bytes, not time.
func TestMemoryPerLease(t *testing.T) {
	perLease := bytesPerLease(t)
	t.Logf("%.0f bytes per held lease", perLease)
	require.LessOrEqual(t, perLease, 500.0)
}

func bytesPerLease(t require.TestingT) float64 {
	const leases, sessions = 100_000, 100
	before := heap()
	m := New()
	apply := func(c Command) Result {
		decoded, err := Decode(Encode(c))
		require.NoError(t, err)
		result, _ := m.Apply(decoded[0])
		return result
	}
	for i := range leases {
		id := engine.SessionID{byte(i % sessions)}
		opened := apply(&OpenSession{Session: id, TTL: time.Minute})
		name := fencing.Resource(fmt.Sprintf("orders/region-1/%08d", i))
		result := apply(&Acquire{Session: id, Incarnation: opened.Incarnation,
			Request: engine.Request{Nonce: engine.Nonce(i/sessions + 1),
				Resources: []fencing.Resource{name}, Holder: "worker-17"}})
		require.Equal(t, Granted, result.Code)
	}
	after := heap()
	runtime.KeepAlive(m)
	return float64(after-before) / leases
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
