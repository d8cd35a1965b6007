package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestReads(t *testing.T) {
	m := New()
	id := engine.SessionID{1}
	m.Apply(&OpenSession{Session: id, TTL: time.Minute})
	for i, name := range []fencing.Resource{"b/2", "a/1", "b/1", "b/3", "b/3"} {
		request := engine.Request{Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{name}, Wait: true, Holder: "h"}
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: request})
	}
	names := func(list []engine.Status) (names []fencing.Resource) {
		for _, s := range list {
			names = append(names, s.Resource)
		}
		return names
	}
	require.Equal(t, []fencing.Resource{"a/1", "b/1", "b/2", "b/3"}, names(m.List("", "", 10)))
	require.Equal(t, []fencing.Resource{"b/1", "b/2"}, names(m.List("b/", "", 2)))
	require.Equal(t, []fencing.Resource{"b/3"}, names(m.List("b/", "b/2", 2)))
	require.Empty(t, m.List("c", "", 10))
	require.Empty(t, m.List("", "", -1))
	require.Len(t, m.List("b/3", "", 1)[0].Waiters, 1)

	ttl, requests, ok := m.Session(id)
	require.True(t, ok)
	require.Equal(t, time.Minute, ttl)
	require.Len(t, requests, 5)
	require.Equal(t, []fencing.Resource{"b/2"}, requests[0].Resources)
	require.Equal(t, fencing.Token(1), requests[0].Party.Token)
	require.Equal(t, fencing.None, requests[4].Party.Token)
	_, _, ok = m.Session(engine.SessionID{2})
	require.False(t, ok)
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
