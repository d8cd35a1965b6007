package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestEndOfASession(t *testing.T) {
	end := &EndRequests{Max: 1}
	run(t, []scenario{
		{"an ended session holds its leases until they end, and can do nothing", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(ann, 2, "b"), "granted #2", "ann/2 granted b #2"},
			{&CloseSession{Session: ann, Incarnation: 1}, "done", ""},
			{try(write(bob, 1, "a")), "held", ""},
			{as(1, write(ann, 3, "c")), "no session", ""},
			{as(1, write(ann, 1, "a")), "no session", ""},
			{&Release{Session: ann, Incarnation: 1, Nonce: 1}, "no session", ""},
			{&CloseSession{Session: ann, Incarnation: 1}, "no session", ""},
			{&Expire{Session: ann, Incarnation: 1, Generation: 1}, "no session", ""},
			{end, "ending", "ann/1 released a #1"},
			{try(write(bob, 2, "a")), "granted #3", "bob/2 granted a #3"},
			{&Lead{}, "done g2", ""}, // the next leader continues
			{end, "done", "ann/2 released b #2"},
			{end, "done", ""},
		}},
		{"its waiters are not granted, and end first", []step{
			{write(bob, 1, "a"), "granted #1", "bob/1 granted a #1"},
			{write(ann, 1, "b"), "granted #2", "ann/1 granted b #2"},
			{write(ann, 2, "a"), "queued", "ann/2 queued a"},
			{write(eve, 1, "a"), "queued", "eve/1 queued a"},
			{write(ann, 3, "b"), "queued", "ann/3 queued b"},
			{&Expire{Session: ann, Generation: 1}, "done", ""},
			{free(bob, 1), "done", "bob/1 released a #1"},
			{end, "ending", "ann/2 cancelled a, eve/1 granted a #3"},
			{end, "ending", "ann/3 cancelled b"},
			{end, "done", "ann/1 expired b #2"},
		}},
		{"the next session with its id is another one", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{&CloseSession{Session: ann}, "done", ""},
			{&OpenSession{Session: ann, TTL: time.Second}, "done", ""},
			{write(ann, 1, "a"), "queued", "ann/1 queued a"},
			{end, "done", "ann/1 released a #1, ann/1 granted a #2"},
			{write(ann, 1, "a"), "granted #2", ""},
		}},
		{"an operator breaks its lease", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "a"), "queued", "bob/1 queued a"},
			{&CloseSession{Session: ann}, "done", ""},
			{&Break{Resource: "a", Token: 1}, "done", "ann/1 broken a #1, bob/1 granted a #2"},
			{&CloseSession{Session: bob}, "done", ""},
			{end, "ending", ""}, // ann has nothing left
			{end, "done", "bob/1 released a #2"},
		}},
		{"the session that ended first comes first", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "b"), "granted #2", "bob/1 granted b #2"},
			{&Expire{Session: bob, Generation: 1}, "done", ""},
			{&CloseSession{Session: ann}, "done", ""},
			{&EndRequests{Max: 2}, "done", "bob/1 expired b #2, ann/1 released a #1"},
		}},
		{"a request for several locks counts as several", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(ann, 2, "b", "c", "d"), "granted #2", "ann/2 granted b+c+d #2"},
			{write(ann, 3, "e"), "granted #3", "ann/3 granted e #3"},
			{&CloseSession{Session: ann}, "done", ""},
			{&EndRequests{Max: 3}, "ending", "ann/1 released a #1"},
			{&EndRequests{Max: 2}, "ending", "ann/2 released b+c+d #2"},
			{&EndRequests{Max: 2}, "done", "ann/3 released e #3"},
		}},
	})
	for _, limit := range []int{0, MaxEndRequests + 1} {
		require.ErrorIs(t, Validate(&EndRequests{Max: limit}), engine.ErrInvalid)
	}
}

// No command ends more than MaxEndRequests requests, however many leases and waiting requests
// a session has, and the commands of others take effect in between. A replica that starts from
// a snapshot in the middle continues in the same way.
func TestEndOfALargeSessionIsBounded(t *testing.T) {
	const leases, waiters = 3*MaxEndRequests + 7, MaxEndRequests + 5
	m := played(t, &Lead{})
	for _, id := range []engine.SessionID{ann, bob, eve} {
		m.Apply(&OpenSession{Session: id, TTL: time.Second, User: who[id]})
	}
	name := func(i int) fencing.Resource { return fencing.Resource(fmt.Sprintf("jobs/%05d", i)) }
	for i := range leases {
		require.Equal(t, Granted, apply(m, as(1, write(ann, engine.Nonce(i+1), name(i)))).Code)
	}
	require.Equal(t, Granted, apply(m, as(2, write(bob, 1, "busy"))).Code)
	for i := range waiters {
		require.Equal(t, Queued, apply(m, as(1, write(ann, engine.Nonce(leases+i+1), "busy"))).Code)
	}
	require.Equal(t, Queued, apply(m, as(2, write(bob, 2, name(leases-1)))).Code) // the last lease to end
	result, events := m.Apply(&CloseSession{Session: ann, Incarnation: 1})
	require.Equal(t, Done, result.Code)
	require.Empty(t, events)

	other, err := Restore(m.Snapshot())
	require.NoError(t, err)
	ended, entries := 0, 0
	for code := Ending; code == Ending; entries++ {
		result, events := m.Apply(&EndRequests{Max: MaxEndRequests})
		same, sameEvents := other.Apply(&EndRequests{Max: MaxEndRequests})
		require.Equal(t, result, same)
		require.Equal(t, events, sameEvents)
		here := 0
		for _, e := range events {
			if e.Session == ann {
				here++
			}
		}
		require.LessOrEqual(t, here, MaxEndRequests)
		code, ended = result.Code, ended+here
		require.Equal(t, leases+waiters-ended, m.usage["ann"].heldAndWaiting())
		nonce := engine.Nonce(entries + 1)
		for _, m := range []*Machine{m, other} {
			require.Equal(t, Granted, apply(m, as(3, write(eve, nonce, "free"))).Code, "others are served in between")
			require.Equal(t, Done, apply(m, &Release{Session: eve, Incarnation: 3, Nonce: nonce}).Code)
		}
		if entries == 1 {
			other, err = Restore(other.Snapshot())
			require.NoError(t, err)
		}
	}
	require.Equal(t, leases+waiters, ended)
	require.Equal(t, Granted, m.Attempt(bob, 2, 2).Code)
	require.Nil(t, m.usage["ann"])
	require.NoError(t, m.check())
	require.Equal(t, m.Snapshot(), other.Snapshot())
}

func (u *usage) heldAndWaiting() int {
	if u == nil {
		return 0
	}
	return u.holders + u.waiters
}

// Thousands of sessions that end together end in as many entries as one session with their
// leases.
func TestEndOfManySessionsIsBounded(t *testing.T) {
	const sessions = 2*MaxEndRequests + 1
	m := played(t, &Lead{})
	for i := range sessions {
		id := engine.SessionID{byte(i), byte(i >> 8), 7}
		k := apply(m, &OpenSession{Session: id, TTL: time.Second}).Incarnation
		m.Apply(as(k, write(id, 1, fencing.Resource(fmt.Sprintf("jobs/%05d", i)))))
		m.Apply(&Expire{Session: id, Incarnation: k, Generation: 1})
	}
	for _, want := range []int{MaxEndRequests, MaxEndRequests, 1} {
		result, events := m.Apply(&EndRequests{Max: MaxEndRequests})
		require.Len(t, events, want)
		require.Len(t, result.Gone, want)
	}
	require.Equal(t, Counts{}, m.Count())
	require.Empty(t, m.everySession.list)
	require.Empty(t, m.everyRequest.list)
}

// What an ended session still holds counts for its user, but the session itself does not.
func TestLimitsCountWhatAnEndedSessionHolds(t *testing.T) {
	m := played(t, &OpenSession{Session: ann, TTL: time.Second, User: "u"})
	limits := Limits{SessionsPerUser: 1, LeasesPerUser: 1, WaitersPerUser: 1}
	acquire := func(id engine.SessionID, nonce engine.Nonce, name fencing.Resource) Result {
		a := as(m.SessionInfo(id).Incarnation, write(id, nonce, name))
		a.Limits = limits
		return apply(m, a)
	}
	require.Equal(t, Granted, acquire(ann, 1, "a").Code)
	open := &OpenSession{Session: bob, TTL: time.Second, User: "u", Limits: limits}
	require.Equal(t, SessionsPerUserName, apply(m, open).Limit.Limit)
	m.Apply(&CloseSession{Session: ann, Incarnation: 1})
	require.Equal(t, Done, apply(m, open).Code)
	require.Equal(t, LeasesPerUserName, acquire(bob, 1, "b").Limit.Limit)
	m.Apply(&EndRequests{Max: 1})
	require.Equal(t, Granted, acquire(bob, 1, "b").Code)
	require.NoError(t, m.check())
}

// A small session ends soon although a large one that ended before it has requests left.
func TestSmallSessionDoesNotWaitForALargeOne(t *testing.T) {
	m := played(t, &OpenSession{Session: ann, TTL: time.Second}, &OpenSession{Session: bob, TTL: time.Second})
	for i := range 10 {
		require.Equal(t, Granted, apply(m, as(1, write(ann, engine.Nonce(i+1), fencing.Resource(fmt.Sprint("a", i))))).Code)
	}
	require.Equal(t, Granted, apply(m, as(2, write(bob, 1, "b"))).Code)
	m.Apply(&CloseSession{Session: ann, Incarnation: 1})
	m.Apply(&CloseSession{Session: bob, Incarnation: 2})
	apply(m, &EndRequests{Max: 2})
	require.Equal(t, []Incarnation{{bob, 2}}, apply(m, &EndRequests{Max: 2}).Gone)
	require.NoError(t, m.check())
	for m.HasEnding() {
		apply(m, &EndRequests{Max: 2})
	}
	require.NoError(t, m.check())
}

// The usage of a user is not lost when a session ends whose record was replaced meanwhile.
func TestUsageOfANewSessionStays(t *testing.T) {
	eve := engine.SessionID{0xe}
	m := played(t, &OpenSession{Session: ann, TTL: time.Second, User: "u"}, &OpenSession{Session: bob, TTL: time.Second,
		User: "u"})
	token := apply(m, as(1, write(ann, 1, "a"))).Token
	m.Apply(&CloseSession{Session: ann, Incarnation: 1})
	require.Equal(t, Done, apply(m, &Break{Resource: "a", Token: token}).Code)
	m.Apply(&CloseSession{Session: bob, Incarnation: 2}) // the user has nothing any more
	m.Apply(&OpenSession{Session: eve, TTL: time.Second, User: "u"})
	m.Apply(&EndRequests{Max: 2})
	require.NoError(t, m.check())
	again := &OpenSession{Session: ann, TTL: time.Second, User: "u", Limits: Limits{SessionsPerUser: 1}}
	require.Equal(t, Limited, apply(m, again).Code)
}
