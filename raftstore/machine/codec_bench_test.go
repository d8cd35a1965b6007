package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// batchSize is the number of commands in a log entry of a busy leader.
const batchSize = 64

// batch returns the commands of a busy leader's log entry: half of them acquire.
func batch() []Command {
	var commands []Command
	for i := range engine.Nonce(batchSize / 2) {
		id := engine.SessionID{byte(i)}
		commands = append(commands,
			&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: i + 1, Wait: true, Holder: "worker-17",
				Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("orders/region-1/%08d", i))}}},
			&Release{Session: id, Incarnation: 1, Nonce: i + 1})
	}
	return commands
}

func BenchmarkEncode(b *testing.B) {
	commands := batch()
	var data []byte
	b.ReportAllocs()
	for b.Loop() {
		data = AppendEncoded(data[:0], commands...)
	}
	b.ReportMetric(float64(len(data))/batchSize, "B/command")
}

func BenchmarkDecode(b *testing.B) {
	data := Encode(batch()...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// held returns a machine with this number of leases of 100 sessions.
func held(t testing.TB, leases int) *Machine {
	const sessions = 100
	m := New()
	for i := range leases {
		id := engine.SessionID{byte(i % sessions)}
		opened, _ := m.Apply(&OpenSession{Session: id, TTL: time.Minute})
		result, _ := m.Apply(&Acquire{Session: id, Incarnation: opened.Incarnation,
			Request: engine.Request{Nonce: engine.Nonce(i/sessions + 1),
				Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("orders/region-1/%08d", i))}, Holder: "worker-17"}})
		require.Equal(t, Granted, result.Code)
	}
	return m
}

// snapshotLeases is the number of leases in the snapshots of the benchmarks.
const snapshotLeases = 10_000

func BenchmarkSnapshot(b *testing.B) {
	m := held(b, snapshotLeases)
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		size = len(m.Snapshot())
	}
	b.ReportMetric(float64(size)/snapshotLeases, "B/lease")
}

func BenchmarkRestore(b *testing.B) {
	data := held(b, snapshotLeases).Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Restore(data); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAllocations bounds the allocations of the paths that every grant takes. Lower a
// bound after an improvement.
func TestAllocations(t *testing.T) {
	id := engine.SessionID{1}
	m := opened(id)
	resources := []fencing.Resource{"a"}
	commands := batch()
	data := Encode(commands...)
	var nonce engine.Nonce
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"acquire and release", 4, func() {
			nonce++
			m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: nonce, Resources: resources,
				Wait: true}})
			m.Apply(&Release{Session: id, Incarnation: 1, Nonce: nonce})
		}},
		{"encode 64 commands", 100, func() { data = AppendEncoded(data[:0], commands...) }},
		{"decode 64 commands", 140, func() {
			if _, err := Decode(data); err != nil {
				t.Error(err)
			}
		}},
		{"snapshot without leases", 35, func() { _ = m.Snapshot() }},
	} {
		got := testing.AllocsPerRun(200, c.run)
		t.Logf("%s: %v allocations", c.name, got)
		require.LessOrEqual(t, got, c.most, c.name)
	}
}
