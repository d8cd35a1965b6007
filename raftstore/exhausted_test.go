package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Without tokens nothing is granted, and the error is definite.
func TestNoTokensAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		s := openSession(t, c.backend(), time.Minute)
		result, _, err := c.leader().propose(testContext(t), &machine.RaiseFloor{By: fencing.MaxToken})
		require.NoError(t, err)
		require.Equal(t, machine.Done, result.Code)
		_, err = s.Acquire(testContext(t), lockRequest(1, "a"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NotErrorIs(t, err, engine.ErrUncertain)
	})
}

// A waiter gets an error when the last token is used up, even while the lock is held: it can
// never be granted.
func TestWaitersFailWithoutTokens(t *testing.T) {
	for name, spend := range map[string]func(t *testing.T, n *Node, s engine.Session){
		"a raised floor": func(t *testing.T, n *Node, _ engine.Session) { raiseFloor(t, n, 0) },
		"a grant": func(t *testing.T, n *Node, s engine.Session) {
			raiseFloor(t, n, 1)
			grant, err := s.Acquire(testContext(t), lockRequest(3, "b"))
			require.NoError(t, err)
			require.Equal(t, fencing.MaxToken, grant.Token)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startMemory(t, 1)
				s := openSession(t, c.backend(), time.Hour)
				_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
				require.NoError(t, err)
				ctx := testContext(t)
				waiting := lockRequest(2, "a")
				waiting.Wait = true
				done := make(chan error, 1)
				go func() {
					_, err := s.Acquire(ctx, waiting)
					done <- err
				}()
				pass(time.Second) // the attempt is in the queue
				spend(t, c.leader(), s)
				requireNoTokens(t, firstOf(t, done, "an answer to the waiter"))
				_, err = s.Acquire(ctx, waiting)
				requireNoTokens(t, err) // a repeated attempt does not wait either
			})
		})
	}
}

// raiseFloor raises the floor so that this many tokens are left.
func raiseFloor(t *testing.T, n *Node, left fencing.Token) {
	by := fencing.MaxToken - n.Status().LastToken - left
	result, _, err := n.propose(testContext(t), &machine.RaiseFloor{By: by})
	require.NoError(t, err)
	require.Equal(t, machine.Done, result.Code)
}

func requireNoTokens(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.NotErrorIs(t, err, engine.ErrUncertain)
	require.ErrorContains(t, err, "all tokens")
}
