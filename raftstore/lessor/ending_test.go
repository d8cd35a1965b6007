package lessor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
)

// opened returns a machine with open sessions, whose incarnations are 1, 2, and so on.
func opened(ids ...engine.SessionID) *machine.Machine {
	m := machine.New()
	for _, id := range ids {
		m.Apply(&machine.OpenSession{Session: id, TTL: 10 * time.Second})
	}
	return m
}

var endRequests = &machine.EndRequests{Max: machine.MaxEndRequests}

// The leader ends the requests of ended sessions until none is left, one command at a time.
func TestEndRequestsIsDueWhileSessionsAreEnding(t *testing.T) {
	l := begin()
	commands, _ := l.Due(at(0))
	require.Empty(t, commands)
	l.Applied(at(0), endRequests, machine.Result{Code: machine.Ending}, nil)
	commands, _ = l.Due(at(0))
	require.Equal(t, []machine.Command{endRequests}, commands)
	commands, wait := l.Due(at(time.Second))
	require.Empty(t, commands, "it is in flight")
	require.Equal(t, lessor.Idle, wait)

	l.Failed(at(time.Second), []machine.Command{endRequests})
	commands, wait = l.Due(at(time.Second))
	require.Empty(t, commands)
	require.Equal(t, lessor.RetryPause, wait)
	commands, _ = l.Due(at(time.Second + lessor.RetryPause))
	require.Equal(t, []machine.Command{endRequests}, commands)

	l.Applied(at(2*time.Second), endRequests, machine.Result{Code: machine.Ending}, nil)
	l.Applied(at(2*time.Second), endRequests, machine.Result{Code: machine.Ending}, nil)
	require.Equal(t, 1, l.Pending(), "not one for each")
	l.Applied(at(2*time.Second), endRequests, machine.Result{Code: machine.Done}, nil)
	require.Zero(t, l.Pending())
}

// A new leader continues what its predecessor began.
func TestNewLeaderEndsRequests(t *testing.T) {
	l := lessor.New(at(0), at(0), 7, true, lessor.ProofLife)
	commands, _ := l.Due(at(0))
	require.Equal(t, []machine.Command{endRequests}, commands)
}

// Sessions whose deadlines pass together expire in several steps. Those that are not due yet
// can be renewed.
func TestExpiriesAreSpread(t *testing.T) {
	l := begin()
	const sessions = 2*lessor.MaxDue + 1
	for i := range sessions {
		open(l, 0, engine.SessionID{byte(i >> 8), byte(i)}, 10*time.Second, uint64(i+1))
	}
	commands, wait := l.Due(at(11 * time.Second))
	require.Len(t, commands, lessor.MaxDue)
	require.Zero(t, wait)
	last := engine.SessionID{byte((sessions - 1) >> 8), byte((sessions - 1) & 255)}
	require.True(t, l.Renew(at(11*time.Second), last, sessions, 0))
	commands, _ = l.Due(at(11 * time.Second))
	require.Len(t, commands, lessor.MaxDue)
	commands, wait = l.Due(at(11 * time.Second))
	require.Empty(t, commands)
	require.Equal(t, 10*time.Second, wait)
}

// All sessions of a takeover have the same deadline. When it passes, those that were renewed since
// get their later one in several steps, between which others are renewed.
func TestRenewedSessionsAreVisitedInPieces(t *testing.T) {
	l := lessor.New(at(0), at(0), 7, false, lessor.ProofLife)
	const sessions = 2*lessor.MaxVisits + 1
	ids := make([]engine.SessionID, sessions)
	for i := range ids {
		ids[i] = engine.SessionID{byte(i >> 8), byte(i)}
	}
	l.Adopt(at(0), opened(ids...), machine.AllSessions)
	for i, id := range ids {
		require.True(t, l.Renew(at(5*time.Second), id, uint64(i+1), 0))
	}
	for step := range 3 {
		commands, wait := l.Due(at(11 * time.Second))
		require.Empty(t, commands)
		if step < 2 {
			require.Zero(t, wait, "after step %d there are more", step)
		} else {
			require.Equal(t, 4*time.Second, wait)
		}
	}
	require.Equal(t, sessions, l.Pending())
	last := 0
	for wait := time.Duration(0); wait == 0; {
		var commands []machine.Command
		commands, wait = l.Due(at(15 * time.Second))
		last += len(commands)
	}
	require.Equal(t, sessions, last, "all of them expire at their later deadline")
}

// A session that is opened again before it is adopted keeps the time that the new leader
// owes it, and its TTL.
func TestAdoptedSessionKeepsItsTime(t *testing.T) {
	l := lessor.New(at(0), at(0), 7, false, lessor.ProofLife)
	require.False(t, l.Renew(at(0), a, 1, 0), "it is not adopted yet")
	open(l, time.Second, a, time.Second, 1)
	m := opened(a, b)
	l.AdoptOne(m, a)
	require.False(t, l.HasAll())
	require.True(t, l.Adopt(at(time.Second), m, 1))
	require.False(t, l.Adopt(at(time.Second), m, 1))
	require.True(t, l.HasAll())
	require.Equal(t, 2, l.Sessions())
	commands, _ := l.Due(at(10 * time.Second))
	require.Empty(t, commands)
	require.True(t, l.Renew(at(10*time.Second), a, 1, 0))
	require.Equal(t, 10*time.Second, l.Left(at(10*time.Second), a))
}

// A renewal counts from its arrival: one that waits longer than the remaining TTL keeps the
// session, and a late one does not shorten it.
func TestRenewalCountsFromItsArrival(t *testing.T) {
	l := begin()
	open(l, 0, a, 10*time.Second, 1)
	require.True(t, l.Renew(at(9*time.Second), a, 1, 0))
	commands, _ := l.Due(at(12 * time.Second))
	require.Empty(t, commands)
	require.True(t, l.Renew(at(2*time.Second), a, 1, 0))
	require.Equal(t, 7*time.Second, l.Left(at(12*time.Second), a))
}
