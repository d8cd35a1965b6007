package clientcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

var timing = clientcore.Timing{TTL: 10 * time.Second, Renew: 3 * time.Second, Drift: 100 * time.Millisecond}

// client is a core, a clock that the test sets, and the last token of a service.
type client struct {
	*testing.T
	*clientcore.Core
	now   engine.Instant
	token fencing.Token
}

func newClient(t *testing.T) *client {
	return &client{T: t, Core: clientcore.New(clientcore.Random{Jitter: func(time.Duration) time.Duration {
		return 0
	}, NewID: engine.NewSessionID}), now: engine.NewInstant(time.Unix(1000, 0), time.Hour)}
}

func (c *client) advance(d time.Duration) { c.now = c.now.Add(d) }

// call returns a call whose first attempt was asked.
func (c *client) call(name fencing.Resource) *clientcore.Call {
	c.Helper()
	a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{name}}, Began: c.now}
	c.ask(a)
	return a
}

func (c *client) ask(a *clientcore.Call) engine.Request {
	c.Helper()
	s, err := c.Route(a, c.now, timing, false)
	require.NoError(c, err)
	if !s.IsOpen() {
		s.Opened(c.now)
	}
	return c.Ask(a, c.now)
}

// grant answers a call with a grant.
func (c *client) grant(a *clientcore.Call) *clientcore.Grant {
	c.Helper()
	c.token++
	g := &clientcore.Grant{}
	answer := engine.Grant{Token: c.token, Mode: engine.Correctness}
	if a.Session().Key().Mode == engine.Efficiency {
		answer.Mode, answer.Name = engine.Efficiency, fmt.Sprint("name", c.token)
	}
	require.NoError(c, c.Granted(a, c.now, g, answer))
	c.Leave(a, c.now)
	return g
}

// A deadline counts from before the ask, not from the answer.
func TestDeadlineCountsFromBeforeTheAsk(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	asked := c.now
	c.advance(time.Second)
	g := c.grant(a)
	require.Equal(t, asked.Add(timing.Validity()), g.Deadline())
	s := g.Session()
	c.advance(timing.Validity() - time.Second - 1)
	require.False(t, g.Check(c.now))
	c.advance(1)
	actions := s.Step(c.now)
	require.Equal(t, []*clientcore.Grant{g}, actions.Ended)
	require.Equal(t, []engine.Held{g.Held}, actions.Release)
	require.ErrorIs(t, g.Err(), engine.ErrExpired)
}

// A grant that arrives after its deadline is not used, and is released.
func TestLateGrantIsReleased(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	s := a.Session()
	c.advance(timing.Validity())
	require.ErrorIs(t, c.Granted(a, c.now, &clientcore.Grant{}, engine.Grant{Token: 1, Mode: engine.Correctness}),
		engine.ErrExpired)
	release := s.Step(c.now).Release
	require.Len(t, release, 1)
	require.EqualValues(t, 1, release[0].Nonce)
}

// A loss that overtakes its grant is not forgotten.
func TestLossThatOvertakesTheGrant(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	require.Nil(t, a.Session().Lost(1, engine.ErrTaken))
	require.ErrorIs(t, c.Granted(a, c.now, &clientcore.Grant{}, engine.Grant{Token: 1, Mode: engine.Correctness}),
		engine.ErrTaken)
}

// A session whose connection has dropped is renewed at the next step, once.
func TestDisconnectedSessionIsRenewedSoon(t *testing.T) {
	c := newClient(t)
	s := c.grant(c.call("a")).Session()
	s.Disconnected()
	c.advance(time.Second)
	r := s.Step(c.now).Renewal
	require.NotNil(t, r)
	require.NoError(t, s.Renewed(r, []engine.Nonce{1}, nil))
	c.advance(time.Second)
	require.Nil(t, s.Step(c.now).Renewal)

	a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"b"}}, Began: c.now}
	fixed, err := c.Route(a, c.now, timing, true)
	require.NoError(t, err)
	fixed.Opened(c.now)
	c.Ask(a, c.now)
	c.grant(a)
	fixed.Disconnected()
	c.advance(time.Second)
	require.Nil(t, fixed.Step(c.now).Renewal, "a lease without renewal is not extended")
}

// While no renewal reaches the service after a connection has dropped, a session of any TTL is renewed every second: it
// cannot hear of losses.
func TestUnreachedSessionIsRenewedOften(t *testing.T) {
	c := newClient(t)
	long := clientcore.Timing{TTL: 24 * time.Hour, Renew: 8 * time.Hour, Drift: time.Second}
	a := &clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"a"}}, Began: c.now}
	s, err := c.Route(a, c.now, long, false)
	require.NoError(t, err)
	s.Opened(c.now)
	c.Ask(a, c.now)
	c.grant(a)
	s.Disconnected()
	var r *clientcore.Renewal
	for range 3 {
		c.advance(time.Second)
		r = s.Step(c.now).Renewal
		require.NotNil(t, r)
		require.Error(t, s.Renewed(r, nil, engine.ErrUnavailable))
	}
	c.advance(time.Second)
	require.NoError(t, s.Renewed(s.Step(c.now).Renewal, []engine.Nonce{1}, nil))
	c.advance(time.Hour)
	require.Nil(t, s.Step(c.now).Renewal)
	c.advance(7 * time.Hour)
	require.Error(t, s.Renewed(s.Step(c.now).Renewal, nil, engine.ErrUnavailable))
	c.advance(time.Minute)
	require.Nil(t, s.Step(c.now).Renewal, "the connection has not dropped since")
}

// A renewal extends only what the engine names, and only grants that were held when it was
// sent.
func TestRenewalExtendsWhatItNames(t *testing.T) {
	c := newClient(t)
	first, second := c.grant(c.call("a")), c.grant(c.call("b"))
	s := first.Session()
	was := second.Deadline()
	c.advance(timing.Renew)
	r := s.Step(c.now).Renewal
	require.NotNil(t, r)
	require.Nil(t, s.Step(c.now).Renewal, "one at a time")
	c.advance(time.Second)
	third := c.grant(c.call("c"))
	require.Error(t, s.Renewed(r, []engine.Nonce{1, 3}, nil))
	require.Equal(t, r.Sent.Add(timing.Validity()), first.Deadline())
	require.Equal(t, was, second.Deadline())
	require.Equal(t, was, third.Deadline(), "it lasts as long as its session did when it was granted")
	require.True(t, first.CoveredBy(r))
	require.False(t, third.CoveredBy(r))

	// After the failure the next one follows sooner, and covers all.
	r = s.Step(r.Sent.Add(timing.Renew / 4)).Renewal
	require.NotNil(t, r)
	require.NoError(t, s.Renewed(r, []engine.Nonce{1, 2, 3}, nil))
	require.Equal(t, r.Sent.Add(timing.Validity()), second.Deadline())
}

// An attempt without an answer keeps its nonce, and is released if its caller leaves.
func TestUnansweredAttempt(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	v := c.Failed(a, c.now, engine.ErrUncertain, false)
	require.True(t, v.Again)
	c.advance(v.Pause)
	request := c.ask(a)
	require.EqualValues(t, 1, request.Nonce)
	require.True(t, request.Repeated)
	s := a.Session()
	require.False(t, c.Failed(a, c.now, engine.ErrUncertain, true).Again)
	c.Leave(a, c.now)
	release := s.Step(c.now).Release
	require.Len(t, release, 1)
	require.EqualValues(t, 1, release[0].Nonce)

	// It is released until the service confirms it.
	s.ReleasedLater(c.now, 1, engine.ErrUnavailable)
	actions := s.Step(c.now)
	require.Empty(t, actions.Release)
	c.advance(actions.Next)
	require.Len(t, s.Step(c.now).Release, 1)
	s.ReleasedLater(c.now, 1, nil)
	require.Empty(t, s.Step(c.now.Add(time.Minute)).Release)
}

// A refused attempt is not released: the engine has ended it.
func TestRefusedAttemptIsNotReleased(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	a.Try = true
	s := a.Session()
	require.False(t, c.Failed(a, c.now, engine.ErrHeld, false).Again)
	c.Leave(a, c.now)
	require.Empty(t, s.Step(c.now).Release)
}

// An attempt can end while its call waits: it was granted and broken before the answer arrived, or the caller was
// stopped until its place was lost. The call makes another attempt.
func TestWaitingCallOutlivesItsAttempt(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	require.True(t, c.Failed(a, c.now, engine.ErrHeld, false).Again)
	require.EqualValues(t, 2, c.ask(a).Nonce)
}

// After a failover the calls that wait ask again, and may exceed the rate of their user. A call that was not queued
// fails at a limit, without a release.
func TestWaitingCallOutlivesALimit(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	require.True(t, c.Failed(a, c.now, engine.ErrUncertain, false).Again)
	require.EqualValues(t, 1, c.ask(a).Nonce)
	tries := 0
	for c.Failed(a, c.now, engine.ErrLimit, false).Again {
		tries++
		require.True(t, c.ask(a).Repeated)
	}
	require.Greater(t, tries, 50, "but not forever: some limits do not pass")
	c.Leave(a, c.now)

	a = c.call("a")
	require.True(t, c.Failed(a, c.now, engine.ErrExpired, false).Again, "its session was lost in an outage")
	_, err := c.Route(a, c.now, timing, false)
	require.NoError(t, err)
	require.True(t, c.Failed(a, c.now, engine.ErrLimit, false).Again, "the new session could not be opened")
	c.Leave(a, c.now)

	for _, refusal := range []error{engine.ErrLimit, engine.ErrForbidden} {
		a = c.call("b")
		require.False(t, c.Failed(a, c.now, refusal, false).Again)
		s := a.Session()
		c.Leave(a, c.now)
		require.Empty(t, s.Step(c.now).Release)
	}

	a = c.call("c")
	a.Try = true
	require.True(t, c.Failed(a, c.now, engine.ErrUncertain, false).Again)
	c.ask(a)
	require.False(t, c.Failed(a, c.now, engine.ErrLimit, false).Again)
	s := a.Session()
	c.Leave(a, c.now)
	require.Len(t, s.Step(c.now).Release, 1, "its first ask may have been granted")
}

// The loss of a session ends its grants, and the call goes on in a new session.
func TestLostSession(t *testing.T) {
	c := newClient(t)
	g := c.grant(c.call("a"))
	a := c.call("b")
	former := a.Session()
	v := c.Failed(a, c.now, engine.ErrExpired, false)
	require.True(t, v.Again)
	require.Equal(t, []*clientcore.Grant{g}, v.Ended)
	require.ErrorIs(t, g.Err(), engine.ErrLost)
	require.EqualValues(t, 1, c.ask(a).Nonce)
	require.NotSame(t, former, a.Session())
	require.True(t, former.Step(c.now).Close)
	_, needed := former.Closing()
	require.False(t, needed, "the service has ended it")
}

// topology returns a topology in which the locks f/ are in efficiency mode.
func topology(t *testing.T, version uint64, policy engine.Policy, addresses ...string) engine.Topology {
	policies, err := engine.NewPolicies(policy)
	require.NoError(t, err)
	return engine.Topology{Version: version, Policies: policies, Ready: true,
		Fleet: engine.Fleet{Namespace: "n", Addresses: addresses, MaxTTL: time.Minute}}
}

var fast = engine.Policy{Prefix: "f/", Mode: engine.Efficiency}

// The modes have sessions of their own. A lock that changes its mode takes its waiters
// along, and its leases end: at once if the change is complete, with their TTL before.
func TestModes(t *testing.T) {
	c := newClient(t)
	c.SetTopology(topology(t, 1, fast, "x:1"))
	g, slow := c.grant(c.call("f/a")), c.grant(c.call("s"))
	require.NotSame(t, g.Session(), slow.Session())
	waiter := c.call("f/a")

	leaving := fast
	leaving.Next = engine.Correctness
	reroute, lost := c.SetTopology(topology(t, 2, leaving, "x:1"))
	require.Equal(t, []*clientcore.Call{waiter}, reroute)
	require.Empty(t, lost)
	v := c.Failed(waiter, c.now, clientcore.ErrRerouted, false)
	require.True(t, v.Again && v.Newer)
	require.EqualValues(t, 1, v.Version)
	_, err := c.Route(waiter, c.now, timing, false)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.EqualValues(t, 2, c.Failed(waiter, c.now, err, false).Version)
	c.advance(timing.Renew)
	require.Empty(t, g.Session().Step(c.now).Renewal.Held, "a lease on a lock that is leaving the mode is not renewed")
	require.True(t, g.Check(c.now.Add(timing.TTL)))
	require.ErrorIs(t, g.Err(), engine.ErrTaken)
	require.ErrorContains(t, g.Err(), "migrating")

	c.SetTopology(topology(t, 3, engine.Policy{Prefix: "f/", Mode: engine.Correctness}, "x:1"))
	c.ask(waiter)
	require.Same(t, slow.Session(), waiter.Session())
	require.NoError(t, slow.Err())
	_, lost = c.SetTopology(topology(t, 2, fast, "x:1"))
	require.Empty(t, lost)
	require.EqualValues(t, 3, c.Topology().Version, "an older topology is not followed")
}

func TestChangedModeAndChangedFleetEndLeases(t *testing.T) {
	for name, next := range map[string]engine.Topology{
		"mode":  topology(t, 2, engine.Policy{Prefix: "f/", Mode: engine.Correctness}, "x:1"),
		"fleet": topology(t, 2, fast, "y:1"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.SetTopology(topology(t, 1, fast, "x:1"))
			g, slow := c.grant(c.call("f/a")), c.grant(c.call("s"))
			_, lost := c.SetTopology(next)
			require.Equal(t, []*clientcore.Grant{g}, lost)
			require.ErrorIs(t, g.Err(), engine.ErrTaken)
			require.Equal(t, []engine.Held{g.Held}, g.Session().Step(c.now).Release)
			require.NoError(t, slow.Err())
		})
	}
}

// Close ends everything, and names the leases of an engine without sessions.
func TestClose(t *testing.T) {
	c := newClient(t)
	c.SetTopology(topology(t, 1, fast, "x:1"))
	g, slow := c.grant(c.call("f/a")), c.grant(c.call("s"))
	sessions, ended := c.Close()
	require.Len(t, sessions, 2)
	require.ElementsMatch(t, []*clientcore.Grant{g, slow}, ended)
	held, needed := g.Session().Closing()
	require.True(t, needed)
	require.Equal(t, []engine.Held{g.Held}, held)
	held, needed = slow.Session().Closing()
	require.True(t, needed)
	require.Empty(t, held, "the service releases the leases of a session")
	_, err := c.Route(&clientcore.Call{Request: &engine.Request{Resources: []fencing.Resource{"s"}}}, c.now, timing, false)
	require.ErrorIs(t, err, clientcore.ErrClosed)
}

// Close names an attempt that waits in an engine without sessions, such as a database: it would be
// granted the lock.
func TestCloseNamesWaitingAttempt(t *testing.T) {
	c := newClient(t)
	a := c.call("a")
	s := a.Session()
	c.Close()
	c.Failed(a, c.now, clientcore.ErrClosed, true)
	c.Leave(a, c.now)
	require.True(t, s.Step(c.now).Close)
	held, needed := s.Closing()
	require.True(t, needed)
	require.Len(t, held, 1)
	require.EqualValues(t, 1, held[0].Nonce)
}

// An unused session is closed after a TTL, and not before.
func TestIdleSessionIsClosed(t *testing.T) {
	c := newClient(t)
	g := c.grant(c.call("a"))
	s := g.Session()
	g.Release()
	s.Released(g.Held, nil)
	require.False(t, s.Step(c.now.Add(timing.TTL-1)).Close)
	require.True(t, s.Step(c.now.Add(timing.TTL)).Close)
	require.NotSame(t, s, c.call("a").Session())
}
