package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
)

// sessionInfo returns the state of a session on the leader.
func sessionInfo(c *cluster, id engine.SessionID) (found machine.SessionInfo) {
	c.leader().fsm.Read(func(m *machine.Machine) { found = m.SessionInfo(id) })
	return found
}

// A session expires, and a late copy of the request that opened it arrives. Its client does not
// know that the session has ended and must learn it now: a successful renewal would extend a
// lease that another client holds.
func TestLateOpenDoesNotHideAnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		first := openSession(t, c.backend(), 10*time.Second).(*Session)
		_, err := first.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		pass(11 * time.Second)
		eventually(t, "the expiry", func() bool { return sessionInfo(c, first.config.ID) == machine.SessionInfo{} })

		late, err := c.backend().Open(ctx, first.config)
		require.NoError(t, err)
		_, err = first.Renew(ctx)
		require.ErrorIs(t, err, engine.ErrExpired)
		_, err = first.Acquire(ctx, lockRequest(2, "b"))
		require.ErrorIs(t, err, engine.ErrExpired)
		granted, err := late.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.NoError(t, first.Release(ctx, engine.Held{Nonce: 1}))
		require.NoError(t, first.Close(ctx))
		status, err := c.backend().Inspect(ctx, "a")
		require.NoError(t, err)
		require.Len(t, status.Holders, 1, "commands of the first incarnation have no effect on the second")
		require.Equal(t, granted.Token, status.Holders[0].Token)
		require.Equal(t, late.(*Session).Incarnation(), sessionInfo(c, first.config.ID).Incarnation)

		pass(9 * time.Second)
		_, err = late.Renew(ctx)
		require.NoError(t, err, "the second incarnation has its own deadline")
		pass(9 * time.Second)
		require.NotZero(t, sessionInfo(c, first.config.ID))
		pass(2 * time.Second)
		eventually(t, "its expiry", func() bool { return sessionInfo(c, first.config.ID) == machine.SessionInfo{} })
	})
}

// A new leader knows the incarnations.
func TestIncarnationsOutliveALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		first := openSession(t, c.backend(), time.Minute).(*Session)
		require.NoError(t, first.Close(ctx))
		second, err := c.backend().Open(ctx, first.config)
		require.NoError(t, err)
		old := c.leader()
		c.isolate(old)
		eventually(t, "another leader", func() bool { return !old.Leads() && c.leader() != old })
		_, err = first.Renew(ctx)
		require.ErrorIs(t, err, engine.ErrExpired)
		_, err = second.Renew(ctx)
		require.NoError(t, err)
		c.heal()
	})
}

func TestAttachNeverOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		ctx := testContext(t)
		first := openSession(t, c.backend(), time.Minute).(*Session)
		config := engine.SessionConfig{ID: first.config.ID, Clock: engine.MonotonicClock()}
		found, err := c.backend().Attach(ctx, config)
		require.NoError(t, err)
		require.Equal(t, first.Incarnation(), found.Incarnation())
		require.Equal(t, time.Minute, found.TTL())
		require.NoError(t, found.Close(ctx))
		_, err = c.backend().Attach(ctx, config)
		require.ErrorIs(t, err, engine.ErrExpired)
		require.Zero(t, c.leader().Status().Counts)
	})
}

// A leader with a fresh proof of leadership attaches a session without a log entry, for its
// owner only.
func TestAttachIsARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		ctx := testContext(t)
		config := engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute, User: "anna",
			Clock: engine.MonotonicClock()}
		_, err := c.backend().Open(ctx, config)
		require.NoError(t, err)
		applied := func() uint64 {
			synctest.Wait() // an operation is answered before the library counts its entry
			return c.leader().Status().Applied
		}
		before := applied()
		pass(lessor.ProofLife / 2)
		_, err = c.backend().Attach(ctx, config)
		require.NoError(t, err)
		require.Equal(t, before, applied())
		holder := engine.Party{Session: config.ID}
		c.leader().leading.Load().describe(&holder)
		require.Equal(t, time.Minute, holder.TTL, "it was renewed")
		pass(lessor.ProofLife)
		_, err = c.backend().Attach(ctx, config)
		require.NoError(t, err)
		require.Greater(t, applied(), before, "the proof was old")
		config.User = "bob"
		_, err = c.backend().Attach(ctx, config)
		require.ErrorIs(t, err, engine.ErrForbidden)
	})
}

// A detached session is open, and reports no loss.
func TestDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		lost := func(engine.Nonce, error) { t.Error("a loss was reported") }
		opened, err := c.backend().Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute, Lost: lost})
		require.NoError(t, err)
		s := opened.(*Session)
		grant, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		s.Detach()
		for _, n := range c.nodes {
			require.True(t, n.hub.Idle())
		}
		require.NoError(t, c.backend().Break(ctx, "a", grant.Token))
		require.NoError(t, s.Extend(ctx))
	})
}
