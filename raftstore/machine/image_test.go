package machine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// An Image is the state at the moment at which it was taken, whatever the machine applies
// while the image is encoded. Run it with -race: requests are shared, and must not change.
func TestImageDoesNotChange(t *testing.T) {
	for i, commands := 0, everyCommand(); i < len(commands); i++ {
		m := played(t, commands[:i]...)
		want := m.Snapshot()
		image := m.Image()
		var work sync.WaitGroup
		var got []byte
		work.Go(func() { got = image.Encode() })
		for _, c := range commands[i:] {
			m.Apply(c)
		}
		work.Wait()
		require.Equal(t, want, got, "before %#v", commands[i])
		require.Equal(t, want, image.Encode(), "before %#v", commands[i])
	}
}

// A waiter of an Image stays a waiter, without a token, when the machine grants it, and the
// attempts that have ended since are live.
func TestImageKeepsWaiters(t *testing.T) {
	m := New()
	id := engine.SessionID{1}
	incarnation := apply(m, &OpenSession{Session: id, TTL: time.Hour}).Incarnation
	m.Apply(&Release{Session: id, Incarnation: incarnation, Nonce: 1}) // an attempt that has ended
	for nonce := engine.Nonce(2); nonce <= 3; nonce++ {
		m.Apply(&Acquire{Session: id, Incarnation: incarnation, Request: engine.Request{Nonce: nonce, Resources: []fencing.Resource{"a"}, Mode: engine.Correctness, Wait: true}})
	}
	want, image := m.Snapshot(), m.Image()
	m.Apply(&Release{Session: id, Incarnation: incarnation, Nonce: 2})
	require.Equal(t, Granted, m.Attempt(id, incarnation, 3).Code)
	require.Equal(t, want, image.Encode())
}

// BenchmarkImage measures how long entries wait for a snapshot, and how long it takes to
// encode.
//
//	go test -run '^$' -bench Image -benchtime 5x ./raftstore/machine
func BenchmarkImage(b *testing.B) {
	for _, size := range []struct{ leases, sessions int }{{100_000, 1}, {1_000_000, 1}, {1_000_000, 10_000}} {
		m := New()
		for i := range size.leases {
			id := engine.SessionID{byte(i % size.sessions), byte(i % size.sessions >> 8), 1}
			incarnation := apply(m, &OpenSession{Session: id, TTL: time.Hour}).Incarnation
			m.Apply(&Acquire{Session: id, Incarnation: incarnation, Request: engine.Request{Nonce: engine.Nonce(i + 1),
				Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("jobs/%07d", i))}, Mode: engine.Correctness, Holder: "worker"}})
		}
		name := fmt.Sprintf("leases=%d/sessions=%d", size.leases, size.sessions)
		b.Run(name+"/wait", func(b *testing.B) {
			for b.Loop() {
				m.Image()
			}
		})
		b.Run(name+"/encode", func(b *testing.B) {
			for b.Loop() {
				m.Image().Encode()
			}
		})
	}
}

// apply returns the result of a command.
func apply(m *Machine, c Command) Result {
	result, _ := m.Apply(c)
	return result
}
