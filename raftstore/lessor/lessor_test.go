package lessor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
)

// at returns a moment on a clock that was never suspended.
func at(d time.Duration) engine.Instant { return engine.NewInstant(time.Unix(0, 0).Add(d), d) }

// begin returns the Lessor of a leadership without sessions.
func begin() *lessor.Lessor { return lessor.New(at(0), at(0), 7, false, 0) }

func open(l *lessor.Lessor, now time.Duration, id engine.SessionID, ttl time.Duration, incarnation uint64) {
	l.Applied(at(now), &machine.OpenSession{Session: id, TTL: ttl}, machine.Result{Code: machine.Done,
		Incarnation: incarnation}, nil)
}

func expire(id engine.SessionID, incarnation uint64) *machine.Expire {
	return &machine.Expire{Session: id, Incarnation: incarnation, Generation: 7}
}

var a, b = engine.SessionID{1}, engine.SessionID{2}

func TestSessionExpiresAtItsDeadline(t *testing.T) {
	l := begin()
	commands, wait := l.Due(at(0))
	require.Empty(t, commands)
	require.Equal(t, lessor.Idle, wait)

	open(l, 0, a, 10*time.Second, 1)
	commands, wait = l.Due(at(4 * time.Second))
	require.Empty(t, commands)
	require.Equal(t, 6*time.Second, wait)
	require.Equal(t, 6*time.Second, l.Left(at(4*time.Second), a))

	l.NoteClient(a, "10.0.0.1:99")
	ago, client := l.LastUse(at(4*time.Second), a)
	require.Equal(t, 4*time.Second, ago)
	require.Equal(t, "10.0.0.1:99", client)
	require.True(t, l.Renew(at(9*time.Second), a, 1, 0))
	ago, _ = l.LastUse(at(11*time.Second), a)
	require.Equal(t, 2*time.Second, ago)
	commands, wait = l.Due(at(10 * time.Second))
	require.Empty(t, commands, "it was renewed")
	require.Equal(t, 9*time.Second, wait)

	commands, _ = l.Due(at(19 * time.Second))
	require.Equal(t, []machine.Command{expire(a, 1)}, commands)
	commands, wait = l.Due(at(20 * time.Second))
	require.Empty(t, commands, "each command is returned once")
	require.Equal(t, lessor.Idle, wait)
	require.False(t, l.Renew(at(20*time.Second), a, 1, 0), "it is expiring")

	l.Applied(at(20*time.Second), expire(a, 1), machine.Result{Code: machine.Done}, nil)
	require.Zero(t, l.Sessions())
	require.Zero(t, l.Left(at(20*time.Second), a))
}

// An Expire whose outcome is uncertain may still commit: until it does the
// session is not renewed, and the Expire is proposed again.
func TestUncertainExpiryIsNotUndone(t *testing.T) {
	l := begin()
	open(l, 0, a, 10*time.Second, 1)
	commands, _ := l.Due(at(10 * time.Second))
	require.Len(t, commands, 1)
	l.Failed(at(11*time.Second), commands)
	require.False(t, l.Renew(at(11*time.Second), a, 1, 0))
	again, wait := l.Due(at(11 * time.Second))
	require.Empty(t, again)
	require.Equal(t, lessor.RetryPause, wait)
	again, _ = l.Due(at(11*time.Second + lessor.RetryPause))
	require.Equal(t, commands, again)
	require.False(t, l.Renew(at(12*time.Second), a, 1, 0))
	l.Applied(at(12*time.Second), commands[0], machine.Result{Code: machine.Done}, nil)
	l.Failed(at(12*time.Second), again)
	require.Zero(t, l.Pending(), "the first one has committed")
}

func TestLockDelayEnds(t *testing.T) {
	m := machine.New()
	for _, c := range []machine.Command{
		&machine.SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: 5 * time.Second}},
		&machine.OpenSession{Session: a, TTL: time.Hour}, // order 1
		&machine.Acquire{Session: a, Incarnation: 1, Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{"r"}}},
		&machine.Expire{Session: a, Incarnation: 1},
		&machine.EndRequests{Max: machine.MaxEndRequests}, // order 3
	} {
		m.Apply(c)
	}
	l := lessor.New(at(0), at(0), 7, false, lessor.ProofLife)
	require.False(t, l.Adopt(at(0), m, machine.AllDelays))
	commands, wait := l.Due(at(time.Second))
	require.Empty(t, commands)
	require.Equal(t, 4*time.Second, wait, "a lock-delay has no grace")
	commands, _ = l.Due(at(5 * time.Second))
	require.Equal(t, []machine.Command{&machine.EndDelay{Resource: "r", Delay: 3, Generation: 7}}, commands)
	l.Failed(at(5*time.Second), commands)
	again, _ := l.Due(at(6 * time.Second))
	require.Equal(t, commands, again)

	l.Applied(at(6*time.Second), &machine.Release{}, machine.Result{Code: machine.Done}, []machine.Event{{
		Type: machine.EventDelayed, Resources: []fencing.Resource{"r"}, Delay: 5 * time.Second, DelayID: 4}})
	commands, _ = l.Due(at(11 * time.Second))
	require.Len(t, commands, 1)

	l = lessor.New(at(0), at(0), 7, false, lessor.ProofLife)
	require.False(t, l.Adopt(at(12*time.Second), m, machine.AllDelays))
	_, wait = l.Due(at(12 * time.Second))
	require.Equal(t, 5*time.Second, wait, "its time begins when it is adopted")
}

func TestIncarnationsAreDistinct(t *testing.T) {
	l := begin()
	open(l, 0, a, time.Hour, 2)
	require.False(t, l.Renew(at(0), a, 1, 0))
	l.Applied(at(0), &machine.CloseSession{Session: a, Incarnation: 1}, machine.Result{Code: machine.NoSession}, nil)
	l.Applied(at(0), &machine.Expire{Session: a, Incarnation: 1}, machine.Result{Code: machine.NoSession}, nil)
	l.Failed(at(0), []machine.Command{expire(a, 1)})
	require.True(t, l.Renew(at(0), a, 2, 0))
	require.Equal(t, 1, l.Pending())
	l.Applied(at(0), &machine.EndSessions{}, machine.Result{Code: machine.Done}, nil)
	require.False(t, l.Renew(at(0), a, 2, 0))
	require.Zero(t, l.Pending())
}

// A closed session must not be renewed, and its id may be opened again.
func TestClosedSessionHasNoDeadline(t *testing.T) {
	l := begin()
	open(l, 0, a, 10*time.Second, 1)
	l.Applied(at(time.Second), &machine.CloseSession{Session: a, Incarnation: 1}, machine.Result{Code: machine.Done}, nil)
	require.False(t, l.Renew(at(2*time.Second), a, 1, 0))
	require.Zero(t, l.Pending())

	open(l, 3*time.Second, a, 10*time.Second, 2)
	require.True(t, l.Renew(at(4*time.Second), a, 2, 0), "the next incarnation has a deadline of its own")
	commands, _ := l.Due(at(14 * time.Second))
	require.Equal(t, []machine.Command{expire(a, 2)}, commands)
}

func TestNewLeaderGivesFullTimeAndGrace(t *testing.T) {
	l := lessor.New(at(0), at(0), 7, false, lessor.ProofLife)
	require.False(t, l.Adopt(at(0), opened(b, a), machine.AllSessions))
	require.Equal(t, 10*time.Second, l.Left(at(0), a), "grace is not shown to callers")
	commands, wait := l.Due(at(10 * time.Second))
	require.Empty(t, commands)
	require.Equal(t, lessor.ProofLife, wait)
	commands, _ = l.Due(at(10*time.Second + lessor.ProofLife))
	require.Equal(t, []machine.Command{expire(a, 2), expire(b, 1)}, commands, "in the order of their ids")
}

func TestProofOfLeadershipAges(t *testing.T) {
	l := lessor.New(at(time.Second), at(0), 7, false, 0)
	require.True(t, l.Proved(at(lessor.ProofLife-1)))
	require.False(t, l.Proved(at(lessor.ProofLife)))
	l.Proven(at(time.Second))
	require.True(t, l.Proved(at(time.Second)))
	suspended := engine.NewInstant(at(time.Second).Time(), time.Minute)
	require.False(t, l.Proved(suspended), "time in suspend counts")
}

// A leader that was suspended extends leases: it does not expire sessions that could not
// renew in that time.
func TestSuspendDoesNotExpireSessions(t *testing.T) {
	l := begin()
	open(l, 0, a, 10*time.Second, 1)
	commands, wait := l.Due(engine.NewInstant(at(time.Second).Time(), time.Hour))
	require.Empty(t, commands)
	require.Equal(t, 9*time.Second, wait)
}

func TestAffects(t *testing.T) {
	require.False(t, lessor.Affects(&machine.Acquire{}, []machine.Event{{Type: machine.EventGranted}}))
	require.True(t, lessor.Affects(&machine.Release{}, []machine.Event{{Type: machine.EventReleased},
		{Type: machine.EventDelayed}}))
	for _, c := range []machine.Command{&machine.OpenSession{}, &machine.CloseSession{}, &machine.Expire{},
		&machine.EndRequests{}, &machine.EndSessions{}} {
		require.True(t, lessor.Affects(c, nil), "%T", c)
	}
}
