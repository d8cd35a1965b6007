package raftstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

func TestClosedSessionsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		term := c.leader().leading.Load()
		size := func() int {
			term.mu.Lock()
			defer term.mu.Unlock()
			require.Equal(t, term.lessor.Sessions(), term.lessor.Pending())
			return term.lessor.Sessions()
		}
		kept := openSession(t, c.backend(), time.Hour)
		for range 50 {
			s := openSession(t, c.backend(), time.Hour)
			other := openSession(t, c.backend(), time.Minute)
			require.NoError(t, s.Close(testContext(t)))
			require.NoError(t, s.Close(testContext(t)), "closed twice")
			require.NoError(t, other.Close(testContext(t)))
		}
		require.Equal(t, 1, size(), "deadlines of ended sessions are removed")

		short := openSession(t, c.backend(), 10*time.Second)
		pass(9 * time.Second)
		_, err := short.Renew(testContext(t))
		require.NoError(t, err)
		pass(9 * time.Second)
		require.Equal(t, 2, size(), "renewed")
		pass(2 * time.Second)
		require.Equal(t, 1, size(), "ended")
		_, err = short.Renew(testContext(t))
		require.ErrorIs(t, err, engine.ErrLost)
		_, err = kept.Renew(testContext(t))
		require.NoError(t, err)
	})
}

func TestSessionTTLIsFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		s := openSession(t, c.backend(), time.Minute).(*Session)
		other := s.config
		other.TTL = time.Hour
		_, err := c.backend().Open(testContext(t), other)
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.ErrorContains(t, err, "with a TTL of 1m0s, not 1h0m0s")
		_, err = c.backend().Open(testContext(t), s.config)
		require.NoError(t, err, "the same TTL returns the open session")
		_, err = s.Renew(testContext(t))
		require.NoError(t, err, "the session is still open")
		require.NoError(t, s.Close(testContext(t)))
		_, err = c.backend().Open(testContext(t), other)
		require.NoError(t, err, "an ended session can be opened again")
	})
}

// A call that is accepted before the deadlines start would find no session, and report an open
// session as expired.
func TestNoCallIsServedBeforeDeadlinesStart(t *testing.T) {
	n := newBareNode()
	n.retire()
	id := engine.NewSessionID()
	var opened machine.Result
	served := make(chan bool, 1)
	n.fsm.Read(func(m *machine.Machine) { // the deadlines cannot start while the machine is locked
		opened, _ = m.Apply(&machine.OpenSession{Session: id, TTL: time.Hour})
		generation := m.Generation()
		go func() { served <- n.serve(generation, n.config.Clock.Now()) }()
		require.Never(t, n.Leads, 100*time.Millisecond, time.Millisecond)
	})
	require.True(t, firstOf(t, served, "the node serves"))
	require.NoError(t, n.extend(n.leading.Load(), n.config.Clock.Now(), id, opened.Incarnation, 0))
	require.True(t, n.retire())
}

func TestAwaitLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx, leader := testContext(t), c.leader()
		id, _, err := leader.AwaitLeader(ctx)
		require.NoError(t, err)
		require.Equal(t, leader.ID(), id)

		follower := c.nodes[0]
		if follower == leader {
			follower = c.nodes[1]
		}
		c.agree()
		var notLeader *NotLeaderError
		_, _, err = follower.AwaitLeader(ctx)
		require.ErrorAs(t, err, &notLeader, "the API address of the leader is unknown")
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NotErrorIs(t, err, engine.ErrUncertain)
		require.NoError(t, leader.SetMemberAPI(ctx, leader.ID(), "192.0.2.1:7000"))
		id, api, err := follower.AwaitLeader(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{leader.ID(), "192.0.2.1:7000"}, []string{id, api})

		c.isolate(leader)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		pass(2 * DefaultHeartbeatTimeout)
		_, _, err = leader.AwaitLeader(cancelled)
		require.ErrorIs(t, err, context.Canceled)
		c.heal()
		eventually(t, "every node finds the leader again", func() bool {
			_, _, err := leader.AwaitLeader(ctx)
			return err == nil || c.leader() != leader
		})
	})
}
