package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// TestLimits shows that each limit refuses what would exceed it, and only that, also in a
// machine that was restored.
func TestLimits(t *testing.T) {
	limits := Limits{SessionsPerUser: 2, LeasesPerUser: 5, WaitersPerUser: 2, WaitersPerLock: 3}
	m := New()
	incarnations := map[engine.SessionID]uint64{}
	open := func(id byte, user string) Result {
		r, _ := m.Apply(&OpenSession{Session: engine.SessionID{id}, TTL: time.Minute, User: user, Limits: limits})
		incarnations[engine.SessionID{id}] = r.Incarnation
		return r
	}
	acquire := func(id byte, nonce engine.Nonce, name string) Result {
		s := engine.SessionID{id}
		r, _ := m.Apply(&Acquire{Session: s, Incarnation: incarnations[s], Limits: limits,
			Request: engine.Request{Nonce: nonce, Resources: []fencing.Resource{fencing.Resource(name)}, Wait: true}})
		return r
	}
	release := func(id byte, nonce engine.Nonce) {
		s := engine.SessionID{id}
		r, _ := m.Apply(&Release{Session: s, Incarnation: incarnations[s], Nonce: nonce})
		require.Equal(t, Done, r.Code)
	}
	refused := func(r Result, says string) {
		t.Helper()
		require.Equal(t, Limited, r.Code)
		require.ErrorIs(t, r.Limit, engine.ErrLimit)
		require.ErrorContains(t, r.Limit, says)
	}
	granted := func(r Result) { t.Helper(); require.Equal(t, Granted, r.Code) }
	queued := func(r Result) { t.Helper(); require.Equal(t, Queued, r.Code) }

	require.Equal(t, Done, open(1, "ann").Code)
	require.Equal(t, Done, open(2, "ann").Code)
	refused(open(3, "ann"), "user ann: 2 sessions, as many as limit-sessions-per-user allows")
	require.Equal(t, Done, open(2, "ann").Code, "it is open")
	for id := byte(4); id < 8; id++ {
		require.Equal(t, Done, open(id, fmt.Sprint("user", id)).Code)
	}

	granted(acquire(1, 1, "a"))
	granted(acquire(1, 2, "b"))
	granted(acquire(2, 1, "c"))
	granted(acquire(4, 1, "d"))

	queued(acquire(1, 3, "d"))
	queued(acquire(2, 3, "d"))
	refused(acquire(2, 4, "d"), "user ann: 2 waiting requests, as many as limit-waiters-per-user allows")
	refused(acquire(2, 2, "e"), "user ann: 5 leases and waiting requests in correctness mode, as many as "+
		"limit-leases-per-user allows")
	queued(acquire(5, 1, "d"))
	refused(acquire(6, 1, "d"), `lock "d": 3 waiting requests, as many as limit-waiters-per-lock allows`)

	restored, err := Restore(m.Snapshot())
	require.NoError(t, err)
	m = restored
	refused(acquire(6, 1, "d"), "limit-waiters-per-lock")
	refused(acquire(2, 2, "e"), "limit-leases-per-user")
	refused(open(3, "ann"), "limit-sessions-per-user")

	release(2, 3)
	queued(acquire(6, 1, "d"))
	granted(acquire(2, 2, "e"))
	refused(acquire(2, 5, "f"), "limit-leases-per-user")
	release(1, 1)
	granted(acquire(2, 5, "f"))
	m.Apply(&CloseSession{Session: engine.SessionID{1}, Incarnation: incarnations[engine.SessionID{1}]})
	require.Equal(t, Done, open(3, "ann").Code)
	for id := range incarnations {
		m.Apply(&CloseSession{Session: id, Incarnation: incarnations[id]})
	}
	m.Apply(&EndRequests{Max: MaxEndRequests})
	require.Empty(t, m.usage)
	require.NoError(t, m.check())
}

// A user cannot exceed the limit of its leases by waiting for locks.
func TestWaitersCountAsLeases(t *testing.T) {
	m := played(t, &OpenSession{Session: ann, TTL: time.Second, User: "ann"},
		&OpenSession{Session: bob, TTL: time.Second, User: "bob"})
	names := []fencing.Resource{"a", "b", "c"}
	for i, name := range names {
		require.Equal(t, Granted, apply(m, as(2, write(bob, engine.Nonce(i+1), name))).Code)
	}
	for i, want := range []Code{Queued, Queued, Limited} {
		a := as(1, write(ann, engine.Nonce(i+1), names[i]))
		a.Limits = Limits{LeasesPerUser: 2}
		require.Equal(t, want, apply(m, a).Code)
	}
	for i := range names {
		m.Apply(&Release{Session: bob, Incarnation: 2, Nonce: engine.Nonce(i + 1)})
	}
	require.Equal(t, usage{sessions: 1, holders: 2}, *m.usage["ann"])
}

// The limit of the waiters of a lock holds for every lock of a set.
func TestWaitersLimitHoldsForEveryLockOfASet(t *testing.T) {
	limit := Limits{WaitersPerLock: 1}
	names := []fencing.Resource{"a", "b", "c"}
	for full := range names {
		m := played(t, &OpenSession{Session: ann, TTL: time.Second}, as(1, write(ann, 1, names...)),
			as(1, write(ann, 2, names[full])))
		set := as(1, write(ann, 3, names...))
		set.Limits = limit
		result := apply(m, set)
		require.Equal(t, Limited, result.Code, "%q has a waiter", names[full])
		require.Equal(t, names[full], result.Limit.Resource)
		require.Equal(t, Ended, m.Attempt(ann, 1, 3).Code)
		m.Apply(&Release{Session: ann, Incarnation: 1, Nonce: 2})
		require.Equal(t, Queued, apply(m, set).Code)
	}
}
