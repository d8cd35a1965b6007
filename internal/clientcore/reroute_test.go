package clientcore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// locks returns a topology in which the lock a has a mode, and perhaps leaves it.
func locks(version uint64, mode, next engine.Mode, fleet string) engine.Topology {
	policies, err := engine.NewPolicies(engine.Policy{Prefix: "a", Mode: mode, Next: next})
	if err != nil {
		panic(err)
	}
	return engine.Topology{Version: version, Ready: true, Policies: policies,
		Fleet: engine.Fleet{Namespace: "n", Addresses: []string{fleet + ":1"}, MaxTTL: timing.TTL}}
}

// A wait through a member that is rerouted may have been granted, or is still queued there.
func TestReroutedWaitIsReleased(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Efficiency, engine.AnyMode, "a"))
	a := c.call("a")
	former := a.Session()
	c.SetTopology(locks(2, engine.Correctness, engine.AnyMode, "a"))
	c.Failed(a, c.now, clientcore.ErrRerouted, false)
	_, err := c.Route(a, c.now, timing, false)
	require.NoError(t, err)
	require.NotSame(t, former, a.Session())
	require.Len(t, former.Step(c.now).Release, 1, "a member may have granted it, or still waits")
}

func TestReroutedWaitIsRepeated(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Efficiency, engine.AnyMode, "a"))
	a := c.call("a")
	c.SetTopology(locks(2, engine.Efficiency, engine.AnyMode, "b"))
	c.Failed(a, c.now, clientcore.ErrRerouted, false)
	require.True(t, c.ask(a).Repeated)
	require.NoError(t, c.grant(a).Err(), "the change ended the former ask, not this one")
}

// An attempt without an answer is released when its lock begins to migrate: the migration waits
// for what it may hold.
func TestMigrationIsNotBlockedByOpenAttempt(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Correctness, engine.AnyMode, "a"))
	a := c.call("a")
	s := a.Session()
	c.Failed(a, c.now, engine.ErrUncertain, false)
	c.SetTopology(locks(2, engine.Correctness, engine.Efficiency, "a"))
	released := 0
	for range 100 {
		c.advance(timing.Renew)
		_, err := c.Route(a, c.now, timing, false)
		require.Error(t, err)
		require.True(t, c.Failed(a, c.now, err, false).Again)
		actions := s.Step(c.now)
		if actions.Renewal != nil {
			_ = s.Renewed(actions.Renewal, nil, nil)
		}
		released += len(actions.Release)
		for _, h := range actions.Release {
			s.ReleasedLater(c.now, h.Nonce, nil)
		}
	}
	require.Equal(t, 1, released, "the service may have granted it, and the migration waits for its holder; the "+
		"session was renewed all the time")
}

// A refusal by the topology is not an answer to the open attempt.
func TestRefusalByRouteReleasesOpenAttempt(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Efficiency, engine.Correctness} {
		c := newClient(t)
		c.SetTopology(locks(1, mode, engine.AnyMode, "a"))
		a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"a"}, Mode: mode}, Began: c.now}
		c.ask(a)
		s := a.Session()
		c.Failed(a, c.now, engine.ErrUncertain, false)
		c.SetTopology(locks(2, 3-mode, engine.AnyMode, "a"))
		_, err := c.Route(a, c.now, timing, false)
		require.ErrorIs(t, err, engine.ErrModeMismatch)
		require.False(t, c.Failed(a, c.now, err, false).Again)
		c.Leave(a, c.now)
		require.Len(t, s.Step(c.now).Release, 1, "%v: its outcome is open", mode)
	}
}

// An ended session is closed when its users have left, and not before.
func TestCloseWaitsForUsers(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Efficiency, engine.AnyMode, "a"))
	a := c.call("a")
	sessions, _ := c.Close()
	s := sessions[0]
	closed := s.Step(c.now).Close
	if closed {
		held, _ := s.Closing()
		require.Empty(t, held)
	}
	g := &clientcore.Grant{}
	require.Error(t, c.Granted(a, c.now, g, engine.Grant{Token: 1, Mode: engine.Efficiency, Name: "n"}))
	c.Leave(a, c.now)
	require.False(t, closed, "the session was closed; nobody releases the grant that arrived later")
	require.True(t, s.Step(c.now).Close)
	held, _ := s.Closing()
	require.Len(t, held, 1)
}

// Sessions that were never opened are forgotten.
func TestUnopenedFixedSessionsAreRemoved(t *testing.T) {
	c := newClient(t)
	for range 1000 {
		a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"a"}}, Began: c.now}
		_, err := c.Route(a, c.now, timing, true)
		require.NoError(t, err)
		c.Failed(a, c.now, fmt.Errorf("open session: %w", engine.ErrUnavailable), true)
		c.Leave(a, c.now)
	}
	sessions, _ := c.Close()
	require.Empty(t, sessions)
}

// A grant of the former fleet or mode that arrives after the new topology is not used.
func TestGrantOfOldFleet(t *testing.T) {
	for _, next := range []engine.Topology{locks(2, engine.Efficiency, engine.AnyMode, "b"),
		locks(2, engine.Correctness, engine.AnyMode, "a")} {
		c := newClient(t)
		c.SetTopology(locks(1, engine.Efficiency, engine.AnyMode, "a"))
		a := c.call("a")
		c.SetTopology(next)
		require.ErrorIs(t, c.Granted(a, c.now, &clientcore.Grant{}, engine.Grant{Token: 1, Mode: engine.Efficiency,
			Name: "n"}), engine.ErrLost)
	}
}

// A refusal says nothing about an earlier ask without an answer.
func TestRefusedAfterUncertain(t *testing.T) {
	for _, mode := range []engine.Mode{engine.AnyMode, engine.Efficiency, engine.Correctness} {
		c := newClient(t)
		if mode != engine.AnyMode { // else it has one engine, such as a database
			c.SetTopology(locks(1, mode, engine.AnyMode, "a"))
		}
		a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"a"}}, Try: true, Began: c.now}
		c.ask(a)
		s := a.Session()
		require.True(t, c.Failed(a, c.now, engine.ErrUncertain, false).Again)
		require.True(t, c.ask(a).Repeated)
		require.False(t, c.Failed(a, c.now, engine.ErrHeld, false).Again) // its first ask may hold it
		c.Leave(a, c.now)
		require.Len(t, s.Step(c.now).Release, 1, mode)
	}
}
