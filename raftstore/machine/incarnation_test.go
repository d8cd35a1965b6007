package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A copy of the request that opened a session arrives after the session has ended. Commands of
// the old session have no effect on the new one.
func TestLateOpenIsAnotherIncarnation(t *testing.T) {
	for _, end := range []string{"expired", "closed"} {
		t.Run(end, func(t *testing.T) {
			m := played(t, &Lead{})
			open := &OpenSession{Session: ann, TTL: time.Second}
			first, _ := m.Apply(open)
			require.NotZero(t, first.Incarnation)
			same, _ := m.Apply(open)
			require.Equal(t, first, same, "opening it again returns the same session")
			early := write(ann, 1, "a")
			early.Incarnation = first.Incarnation
			granted, _ := m.Apply(early)
			require.Equal(t, Granted, granted.Code)

			var ended Result
			if end == "expired" {
				ended, _ = m.Apply(&Expire{Session: ann, Incarnation: first.Incarnation, Generation: 1})
			} else {
				ended, _ = m.Apply(&CloseSession{Session: ann, Incarnation: first.Incarnation})
			}
			require.Equal(t, Done, ended.Code)
			m.Apply(&EndRequests{Max: MaxEndRequests})
			second, _ := m.Apply(open)
			require.Greater(t, second.Incarnation, first.Incarnation)
			late := write(ann, 1, "a")
			late.Incarnation = second.Incarnation
			granted, _ = m.Apply(late)
			require.Equal(t, Granted, granted.Code, "the nonces of the first session are free")

			before := m.Snapshot()
			for _, c := range []Command{early, &Release{Session: ann, Incarnation: first.Incarnation, Nonce: 1},
				&CloseSession{Session: ann, Incarnation: first.Incarnation}, &Expire{Session: ann, Incarnation: first.Incarnation,
					Generation: 1},
				write(ann, 2, "b"), free(ann, 1), &CloseSession{Session: ann}, &Expire{Session: ann, Generation: 1}} {
				result, events := m.Apply(c)
				require.Equal(t, NoSession, result.Code, "%T", c)
				require.Empty(t, events)
			}
			require.Equal(t, before, m.Snapshot())
			require.Equal(t, NoSession, m.Attempt(ann, first.Incarnation, 1).Code)
			require.Equal(t, Granted, m.Attempt(ann, second.Incarnation, 1).Code)
			require.Equal(t, SessionInfo{TTL: time.Second, Incarnation: second.Incarnation}, m.SessionInfo(ann))
			require.NoError(t, m.check())
		})
	}
}

// Incarnations are part of the state: a replica that was restored from a snapshot returns the
// same results.
func TestIncarnationsAreInSnapshots(t *testing.T) {
	m := played(t, &Lead{}, &OpenSession{Session: bob, TTL: time.Second}, &OpenSession{Session: ann, TTL: time.Second})
	other, err := Restore(m.Snapshot())
	require.NoError(t, err)
	require.Equal(t, m.SessionInfo(ann), other.SessionInfo(ann))
	require.Equal(t, m.Snapshot(), other.Snapshot())
	for _, m := range []*Machine{m, other} {
		m.Apply(&CloseSession{Session: ann, Incarnation: 2})
		again, _ := m.Apply(&OpenSession{Session: ann, TTL: time.Second})
		require.EqualValues(t, 3, again.Incarnation)
	}
}

// EndSessions ends all leases and grants none. No incarnation is used again.
func TestEndSessions(t *testing.T) {
	m := played(t, &Lead{}, &SetPolicy{Policy: engine.Policy{Prefix: "d", Mode: engine.Correctness,
		LockDelay: time.Minute}})
	for _, id := range []engine.SessionID{ann, bob} {
		m.Apply(&OpenSession{Session: id, TTL: time.Second})
	}
	for _, c := range []Command{write(ann, 1, "a"), write(bob, 1, "a"), write(bob, 2, "b"), write(ann, 2, "b"),
		write(ann, 3, "d")} {
		m.Apply(inPresentSession(m, c))
	}
	last, before := m.LastToken(), m.Order()
	const above = 1 << 40
	result, events := m.Apply(&EndSessions{Above: above})
	require.Equal(t, Done, result.Code)
	for _, e := range events {
		require.NotEqual(t, EventGranted, e.Type)
	}
	require.NoError(t, m.check())
	require.Equal(t, Counts{Locks: 1}, m.Count(), "only the lock that is delayed is in use")
	require.Equal(t, last, m.LastToken())
	opened, _ := m.Apply(&OpenSession{Session: ann, TTL: time.Second})
	require.Greater(t, opened.Incarnation, uint64(above+1<<32))
	m.Apply(&EndSessions{})
	again, _ := m.Apply(&OpenSession{Session: ann, TTL: time.Second})
	require.Greater(t, again.Incarnation, max(before, opened.Incarnation)+1<<32,
		"the incarnation is above all earlier ones")
	require.ErrorIs(t, Validate(&EndSessions{Above: maxCount}), engine.ErrInvalid)
	_, err := Restore(m.Snapshot())
	require.NoError(t, err)
}
