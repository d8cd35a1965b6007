package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A search looks at the first holders and waiters, page by page.
func TestSearch(t *testing.T) {
	m := played(t, &OpenSession{Session: ann, TTL: time.Minute, User: "ops"}, &OpenSession{Session: bob, TTL: time.Minute})
	for i, name := range []fencing.Resource{"a", "b", "c", "d"} {
		m.Apply(as(1, write(ann, engine.Nonce(i+1), name)))
	}
	waits := as(2, write(bob, 1, "b"))
	waits.Request.Holder = "worker-7"
	m.Apply(waits)
	has := func(text string) func(string) bool {
		return func(s string) bool { return strings.Contains(s, text) }
	}
	found, next := m.Search(has("op"), "", 3, 1)
	require.Equal(t, []fencing.Resource{"a", "b", "c"}, found)
	found, next = m.Search(has("op"), next, 3, 1)
	require.Equal(t, []fencing.Resource{"d"}, found)
	require.Empty(t, next)
	found, _ = m.Search(has("worker"), "", 9, 1)
	require.Equal(t, []fencing.Resource{"b"}, found)
	found, _ = m.Search(has("worker"), "", 9, 0)
	require.Empty(t, found, "only the first parties are looked at")
}

func TestReads(t *testing.T) {
	m := New()
	id := engine.SessionID{1}
	m.Apply(&OpenSession{Session: id, TTL: time.Minute})
	for i, name := range []fencing.Resource{"b/2", "a/1", "b/1", "b/3", "b/3"} {
		request := engine.Request{Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{name}, Wait: true, Holder: "h"}
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: request})
	}
	require.Equal(t, []fencing.Resource{"a/1", "b/1", "b/2", "b/3"}, m.List("", "", 10))
	require.Equal(t, []fencing.Resource{"b/1", "b/2"}, m.List("b/", "", 2))
	require.Equal(t, []fencing.Resource{"b/3"}, m.List("b/", "b/2", 2))
	require.Empty(t, m.List("c", "", 10))
	require.Empty(t, m.List("", "", -1))
	require.Len(t, m.Inspect("b/3").Waiters, 1)

	requests, open := m.Requests(id)
	require.True(t, open)
	require.Equal(t, 5, requests)
	_, open = m.Requests(engine.SessionID{2})
	require.False(t, open)
	require.Nil(t, m.Holds(engine.SessionID{2}, 1))
	require.Equal(t, Granted, m.Attempt(id, 1, 4).Code)
	require.Equal(t, fencing.Token(4), m.Attempt(id, 1, 4).Token)
	require.Equal(t, Queued, m.Attempt(id, 1, 5).Code)
	require.Equal(t, Ended, m.Attempt(id, 1, 6).Code)
	require.Equal(t, NoSession, m.Attempt(engine.SessionID{2}, 0, 1).Code)
	want := Counts{Sessions: 1, Locks: 4, Holders: 4, Waiters: 1}
	require.Equal(t, want, m.Count())
	restored, err := Restore(m.Snapshot())
	require.NoError(t, err)
	require.Equal(t, want, restored.Count())
	m.Apply(&Release{Session: id, Incarnation: 1, Nonce: 4}) // the waiter is granted
	require.Equal(t, Counts{Sessions: 1, Locks: 4, Holders: 4}, m.Count())
	m.Apply(&CloseSession{Session: id, Incarnation: 1})
	m.Apply(&EndRequests{Max: MaxEndRequests})
	require.Equal(t, Counts{}, m.Count())
}

// A large session is read in pieces, between which its leases end and others are granted.
func TestHoldsAreReadInPieces(t *testing.T) {
	m := New()
	id := engine.SessionID{1}
	m.Apply(&OpenSession{Session: id, TTL: time.Minute})
	acquire := func(nonce engine.Nonce) {
		request := engine.Request{Nonce: nonce, Resources: []fencing.Resource{fencing.Resource(fmt.Sprint(nonce))},
			Metadata: map[string]string{"k": "v"}}
		result, _ := m.Apply(&Acquire{Session: id, Incarnation: 1, Request: request})
		require.Equal(t, Granted, result.Code)
	}
	release := func(nonces ...engine.Nonce) {
		for _, nonce := range nonces {
			m.Apply(&Release{Session: id, Incarnation: 1, Nonce: nonce})
		}
	}
	for nonce := engine.Nonce(1); nonce <= 9; nonce++ {
		acquire(nonce)
	}
	m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: 20, Resources: []fencing.Resource{"1"},
		Wait: true}})
	holds := m.Holds(id, 1)
	page, more := holds.Next(3)
	require.Equal(t, []Hold{{1, 1}, {2, 2}, {3, 3}}, page)
	require.True(t, more)
	release(2, 3, 5) // 3 was the last one of the piece
	release(4, 6)    // 3 was followed by 4
	acquire(10)
	page, more = holds.Next(3)
	require.Equal(t, []Hold{{7, 7}}, page, "at most 3 are visited: 4, 6 and 7")
	require.True(t, more)
	page, more = holds.Next(9)
	require.Equal(t, []Hold{{8, 8}, {9, 9}, {10, 10}}, page)
	require.False(t, more)

	for nonce := engine.Nonce(100); nonce < 10_000; nonce++ {
		acquire(nonce)
	}
	holds = m.Holds(id, 1)
	work := testing.AllocsPerRun(5, func() {
		page, more = holds.Next(10)
		m.Requests(id)
		m.Attempt(id, 1, 20)
	})
	require.True(t, more)
	require.Less(t, work, 100.0, "a read of a few grants must not copy the session")
}
