package clientcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// A call that does not ask at the moment has no wait that a new topology could end.
func TestOnlyAsksAreRerouted(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Efficiency, engine.AnyMode, "a"))
	c.Failed(c.call("a"), c.now, engine.ErrUnavailable, false)
	reroute, _ := c.SetTopology(locks(2, engine.Efficiency, engine.AnyMode, "b"))
	require.Empty(t, reroute)
}

// A service that follows a newer topology than the client does not end a call.
func TestModeErrorOfANewerTopology(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Correctness, engine.AnyMode, "a"))
	v := c.Failed(c.call("a"), c.now, &engine.ModeError{Resource: "a", Want: engine.Correctness, Have: engine.Efficiency},
		false)
	require.True(t, v.Again && v.Newer)
	require.ErrorIs(t, v.Err, engine.ErrUnavailable)
	require.NotErrorIs(t, v.Err, engine.ErrModeMismatch)
}

// A loss ends the attempt that it names, not a later one of the same call.
func TestLossOfAFormerAttempt(t *testing.T) {
	c := newClient(t)
	c.SetTopology(locks(1, engine.Correctness, engine.AnyMode, "a"))
	a := c.call("a")
	s := a.Session()
	c.Failed(a, c.now, engine.ErrUncertain, false)
	c.SetTopology(locks(2, engine.Correctness, engine.Efficiency, "a"))
	_, err := c.Route(a, c.now, timing, false)
	require.Error(t, err, "the migration ends the attempt")
	c.SetTopology(locks(3, engine.Correctness, engine.AnyMode, "a"))
	require.EqualValues(t, 2, c.ask(a).Nonce)
	require.Same(t, s, a.Session())
	require.Nil(t, s.Lost(1, engine.ErrTaken))
	require.NoError(t, c.grant(a).Err())
}

// An error that does not say what became of a lease means that it is not held. What may be
// left of it at Redis nodes is released.
func TestLostGrant(t *testing.T) {
	c := newClient(t)
	c.SetTopology(topology(t, 1, fast, "x:1"))
	for name, releases := range map[fencing.Resource]int{"f/a": 1, "s": 0} {
		g := c.grant(c.call(name))
		require.Same(t, g, g.Session().Lost(g.Held.Nonce, errors.New("gone")))
		require.ErrorIs(t, g.Err(), engine.ErrNotHeld)
		require.Len(t, g.Session().Step(c.now).Release, releases)
		require.Nil(t, g.Session().Lost(g.Held.Nonce, engine.ErrTaken), "once")
	}
}

// Releases of a session that ends become a part of its end.
func TestEndTakesOverReleases(t *testing.T) {
	c := newClient(t)
	c.SetTopology(topology(t, 1, fast, "x:1"))
	g := c.grant(c.call("f/a"))
	s := g.Session()
	s.Lost(g.Held.Nonce, engine.ErrTaken)
	s.End(engine.ErrReleased)
	require.Empty(t, s.Step(c.now).Release)
	held, needed := s.Closing()
	require.True(t, needed)
	require.Equal(t, []engine.Held{g.Held}, held)
}

// A release in the background is sent once at a time, and after growing pauses.
func TestExtendedGrantHasItsOwnDeadline(t *testing.T) {
	c := newClient(t)
	extended, other := c.grant(c.call("a")), c.grant(c.call("b"))
	s, longer := extended.Session(), 10*timing.TTL
	renew := func() *clientcore.Renewal {
		r, err := s.StartRenewal(c.now)
		require.NoError(t, err)
		require.NoError(t, s.Renewed(r, []engine.Nonce{1, 2}, nil))
		return r
	}
	renew()
	sent := c.now
	c.advance(time.Second)
	extended.Extended(sent, longer)
	until := sent.Add(longer - 10*timing.Drift)
	require.Equal(t, until, extended.Deadline(), "from before the request was sent, with the drift of the longer time")
	extended.Extended(c.now, timing.TTL)
	require.Equal(t, until, extended.Deadline(), "a shorter extension takes nothing back")
	r := renew()
	require.Equal(t, until, extended.Deadline())
	require.Equal(t, r.Sent.Add(timing.Validity()), other.Deadline())

	c.advance(timing.Validity())
	actions := s.Step(c.now)
	require.Equal(t, []*clientcore.Grant{other}, actions.Ended)
	_ = s.Renewed(actions.Renewal, nil, engine.ErrUnavailable)
	require.Greater(t, s.Step(c.now).Next, time.Millisecond, "no deadline is near")
	c.now = until
	require.Equal(t, []*clientcore.Grant{extended}, s.Step(c.now).Ended)
	extended.Extended(c.now, longer)
	require.ErrorIs(t, extended.Err(), engine.ErrExpired)
}

func TestReleaseInTheBackground(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	s := a.Session()
	c.grant(c.call("b")) // the session is in use
	c.Failed(a, c.now, engine.ErrUncertain, true)
	c.Leave(a, c.now)
	for _, pause := range []time.Duration{10, 20, 40, 80} {
		actions := s.Step(c.now)
		require.Len(t, actions.Release, 1)
		require.Empty(t, s.Step(c.now).Release, "it is under way")
		s.ReleasedLater(c.now, 1, engine.ErrUnavailable)
		actions = s.Step(c.now)
		require.Empty(t, actions.Release)
		require.Equal(t, pause*time.Millisecond, actions.Next)
		c.advance(actions.Next)
	}
}

func TestReleasesUnderWayAreBounded(t *testing.T) {
	const attempts, bound = 1000, 100
	c := newClient(t)
	used := c.call("a")
	s := used.Session()
	c.grant(used)
	for n := range attempts {
		a := c.call(fencing.Resource(fmt.Sprint("b", n)))
		c.Failed(a, c.now, context.DeadlineExceeded, true)
		c.Leave(a, c.now)
	}
	released := 0
	for released < attempts {
		due := s.Step(c.now).Release
		require.Len(t, due, bound)
		require.Empty(t, s.Step(c.now).Release)
		for _, held := range due {
			s.ReleasedLater(c.now, held.Nonce, nil)
		}
		released += len(due)
	}
	require.Empty(t, s.Step(c.now).Release)
}

// A client without a connection makes many attempts whose callers give up: the service never heard of them.
func TestUnsentAttemptIsNotReleased(t *testing.T) {
	c := newClient(t)
	used := c.call("a")
	s := used.Session()
	c.grant(used)
	a := c.call("b")
	c.Failed(a, c.now, fmt.Errorf("%w: %w", engine.ErrUnavailable, context.DeadlineExceeded), true)
	c.Leave(a, c.now)
	require.Empty(t, s.Step(c.now).Release)
}

// A renewal names the leases of an engine without sessions, in order.
func TestRenewalNamesLeases(t *testing.T) {
	c := newClient(t)
	c.SetTopology(topology(t, 1, fast, "x:1"))
	var want []engine.Held
	var grants []*clientcore.Grant
	for range 20 {
		g := c.grant(c.call("f/a"))
		grants, want = append(grants, g), append(want, g.Held)
	}
	s := grants[0].Session()
	c.advance(timing.Renew)
	require.Equal(t, want, s.Step(c.now).Renewal.Held)
	require.Equal(t, grants, s.End(engine.ErrReleased), "in order, too")
}

// The time without use counts from the last use, whether that was a lease or a call.
func TestIdleTimeCountsFromTheLastUse(t *testing.T) {
	for name, use := range map[string]func(*client) *clientcore.Session{
		"lease": func(c *client) *clientcore.Session {
			g := c.grant(c.call("a"))
			s := g.Session()
			for range 10 {
				c.advance(timing.Renew)
				require.NoError(t, s.Renewed(s.Step(c.now).Renewal, []engine.Nonce{1}, nil))
			}
			s.Step(c.now)
			g.Release()
			s.Released(g.Held, nil)
			return s
		},
		"call": func(c *client) *clientcore.Session {
			a := c.call("a")
			s := a.Session()
			c.advance(3 * timing.TTL)
			c.Failed(a, c.now, engine.ErrHeld, false)
			c.Leave(a, c.now)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			s := use(c)
			require.False(t, s.Step(c.now.Add(timing.TTL-1)).Close)
			require.True(t, s.Step(c.now.Add(timing.TTL)).Close)
		})
	}
}

// A lease without renewal has a session of its own, which ends with it.
func TestSessionOfALeaseWithoutRenewal(t *testing.T) {
	c := newClient(t)
	a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"a"}}, Began: c.now}
	s, err := c.Route(a, c.now, timing, true)
	require.NoError(t, err)
	s.Opened(c.now)
	c.Ask(a, c.now)
	g := c.grant(a)
	c.advance(timing.Renew)
	require.Nil(t, s.Step(c.now).Renewal)
	g.Release()
	require.False(t, s.Step(c.now).Close, "the release is under way")
	s.Released(g.Held, nil)
	require.True(t, s.Step(c.now).Close)
}

// A timer that is almost due does not spin.
func TestNextStepIsNotAtOnce(t *testing.T) {
	c := newClient(t)
	g := c.grant(c.call("a"))
	c.advance(timing.Validity() - 1)
	require.GreaterOrEqual(t, g.Session().Step(c.now).Next, time.Millisecond)
}

// Pauses grow, and start small again after a try that the service had answered for a while.
func TestBackoff(t *testing.T) {
	c := newClient(t)
	var b clientcore.Backoff
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 320, 500, 500} {
		pause := c.NextPause(&b, c.now)
		require.Equal(t, want*time.Millisecond, pause)
		c.advance(pause + time.Second)
	}
	c.advance(1)
	require.Equal(t, 10*time.Millisecond, c.NextPause(&b, c.now))
}
