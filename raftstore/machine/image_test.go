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

// An Image is the state at the moment at which it was begun, whatever the machine applies
// while the image is copied and encoded. Run it with -race: requests are shared, and must not
// change.
func TestImageDoesNotChange(t *testing.T) {
	for i, commands := 0, append(everyCommand(), endEverything()...); i < len(commands); i++ {
		for _, piece := range []int{1, 3, 1000} {
			m := played(t, commands[:i]...)
			want := m.Snapshot()
			image := m.Image()
			rest := commands[i:]
			for done := false; !done; {
				done = image.Copy(piece)
				if len(rest) > 0 {
					m.Apply(rest[0])
					rest = rest[1:]
				}
			}
			require.Nil(t, m.image)
			var work sync.WaitGroup
			var got []byte
			work.Go(func() { got = image.Encode() })
			for _, c := range rest {
				m.Apply(c)
			}
			work.Wait()
			require.Equal(t, want, got, "before %#v", commands[i])
			require.Equal(t, want, image.Encode(), "before %#v", commands[i])
		}
	}
}

// endEverything returns commands that end the sessions of everyCommand and open others.
func endEverything() (commands []Command) {
	m := New()
	for _, c := range everyCommand() {
		m.Apply(c)
	}
	for _, id := range m.sessionIDs() {
		commands = append(commands, &CloseSession{Session: id, Incarnation: m.SessionInfo(id).Incarnation},
			&EndRequests{Max: 1},
			&OpenSession{Session: id, TTL: time.Minute, User: "next"}, &EndRequests{Max: 2})
	}
	return append(commands, &EndRequests{Max: MaxEndRequests})
}

// A step of an Image copies only so many sessions and requests, and beginning one copies none.
func TestImageIsCopiedInPieces(t *testing.T) {
	m := New()
	const sessions = 100
	for i := range sessions {
		id := engine.SessionID{byte(i + 1)}
		k := apply(m, &OpenSession{Session: id, TTL: time.Hour}).Incarnation
		for nonce := engine.Nonce(1); nonce <= 2; nonce++ {
			m.Apply(as(k, write(id, nonce, fencing.Resource(fmt.Sprintf("%d/%d", i, nonce)))))
		}
	}
	want, image := m.Snapshot(), m.Image()
	require.Empty(t, image.sessions)
	require.Empty(t, image.requests)
	steps := 0
	for done := false; !done; steps++ {
		before := len(image.sessions) + len(image.requests)
		done = image.Copy(10)
		require.LessOrEqual(t, len(image.sessions)+len(image.requests), before+20)
	}
	require.Equal(t, 2*sessions/10, steps)
	require.Equal(t, want, image.Encode())

	first := m.Image()
	m.Image().Drop() // completes the first one
	require.Nil(t, m.image)
	m.Apply(&EndSessions{})
	require.Equal(t, want, first.Encode())
}

// A waiter of an Image stays a waiter, without a token, when the machine grants it, and the
// attempts that have ended since are live.
func TestImageKeepsWaiters(t *testing.T) {
	m := New()
	id := engine.SessionID{1}
	incarnation := apply(m, &OpenSession{Session: id, TTL: time.Hour}).Incarnation
	m.Apply(&Release{Session: id, Incarnation: incarnation, Nonce: 1}) // an attempt that has ended
	for nonce := engine.Nonce(2); nonce <= 3; nonce++ {
		m.Apply(&Acquire{Session: id, Incarnation: incarnation, Request: engine.Request{Nonce: nonce,
			Resources: []fencing.Resource{"a"}, Mode: engine.Correctness, Wait: true}})
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
	for _, size := range []struct{ leases, sessions int }{{100_000, 1}, {1_000_000, 1}, {1_000_000, 1_000_000}} {
		m := New()
		for i := range size.leases {
			id := engine.SessionID{byte(i % size.sessions), byte(i % size.sessions >> 8), byte(i % size.sessions >> 16), 1}
			incarnation := apply(m, &OpenSession{Session: id, TTL: time.Hour}).Incarnation
			m.Apply(&Acquire{Session: id, Incarnation: incarnation, Request: engine.Request{Nonce: engine.Nonce(i + 1),
				Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("jobs/%07d", i))}, Mode: engine.Correctness,
				Holder: "worker"}})
		}
		name := fmt.Sprintf("leases=%d/sessions=%d", size.leases, size.sessions)
		b.Run(name+"/wait", func(b *testing.B) { // for the longest step
			longest := time.Duration(0)
			for b.Loop() {
				step := time.Now()
				image := m.Image()
				for done := false; !done; {
					done = image.Copy(4096)
					longest, step = max(longest, time.Since(step)), time.Now()
				}
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "step-ms")
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
