package clientcore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A session keeps nothing of attempts and grants that have ended.
func TestSessionForgets(t *testing.T) {
	c := New(Random{Jitter: func(time.Duration) time.Duration { return 0 }, NewID: engine.NewSessionID})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	var s *Session
	ask := func() *Call {
		a := &Call{Request: &engine.Request{Resources: []fencing.Resource{"a"}}, Began: now}
		var err error
		s, err = c.Route(a, now, Timing{TTL: 10 * time.Second, Renew: 3 * time.Second}, false)
		require.NoError(t, err)
		s.Opened(now)
		c.Ask(a, now)
		return a
	}
	a := ask()
	g := &Grant{}
	require.NoError(t, c.Granted(a, now, g, engine.Grant{Token: 1, Mode: engine.Correctness}))
	c.Leave(a, now)
	require.Empty(t, s.attempts)
	require.Len(t, s.uncovered, 1)
	now = now.Add(3 * time.Second)
	require.NoError(t, s.Renewed(s.Step(now).Renewal, []engine.Nonce{1}, nil))
	require.Empty(t, s.uncovered, "its deadline is that of the session")
	g.Release()
	s.Released(g.Held, nil)

	refused := ask()
	c.Failed(refused, now, engine.ErrHeld, false)
	c.Leave(refused, now)

	expired := ask()
	require.NoError(t, c.Granted(expired, now, &Grant{}, engine.Grant{Token: 2, Mode: engine.Correctness}))
	c.Leave(expired, now)
	now = now.Add(10 * time.Second)
	release := s.Step(now).Release
	require.Len(t, release, 1)
	s.ReleasedLater(now, release[0].Nonce, nil)

	require.Empty(t, s.attempts)
	require.Empty(t, s.grants)
	require.Empty(t, s.uncovered)
	require.Empty(t, s.releases)
}
