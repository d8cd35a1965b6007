package memory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/memory"
)

// The end of a session with many leases does not delay others: its leases end in pieces, and
// others are served in between.
func TestLargeSessionEndsInPieces(t *testing.T) {
	const leases = 3*machine.MaxEndRequests + 1
	ctx := context.Background()
	locks, err := memory.New()
	require.NoError(t, err)
	held := func() int {
		status, err := locks.Inspect(ctx, fencing.Resource(fmt.Sprint("lock/", leases)))
		require.NoError(t, err)
		return len(status.Holders)
	}
	lost, between := 0, 0
	s, err := locks.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour, Clock: engine.SystemClock(),
		Lost: func(engine.Nonce, error) {
			lost++
			between += held()
		}})
	require.NoError(t, err)
	for i := 1; i <= leases; i++ {
		_, err := s.Acquire(ctx, engine.Request{Nonce: engine.Nonce(i),
			Resources: []fencing.Resource{fencing.Resource(fmt.Sprint("lock/", i))}})
		require.NoError(t, err)
	}
	locks.ExpireAll()
	require.Equal(t, leases, lost)
	require.Equal(t, leases-1, between, "the last lease ends in a piece of its own")
	require.Zero(t, held())
	_, err = s.Renew(ctx)
	require.ErrorIs(t, err, engine.ErrExpired)
}

// Opening a session again renews it, and every client that opened it is notified of a loss.
func TestReopenedSession(t *testing.T) {
	ctx := context.Background()
	locks, err := memory.New()
	require.NoError(t, err)
	id, lost := engine.NewSessionID(), make([]int, 2)
	var sessions []engine.Session
	for i := range lost {
		s, err := locks.Open(ctx, engine.SessionConfig{ID: id, TTL: time.Hour, Clock: engine.SystemClock(),
			Lost: func(engine.Nonce, error) { lost[i]++ }})
		require.NoError(t, err)
		sessions = append(sessions, s)
	}
	grant, err := sessions[0].Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	again, err := sessions[1].Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	require.Equal(t, grant.Token, again.Token, "it is one attempt")
	require.NoError(t, locks.Break(ctx, "a", grant.Token))
	require.Equal(t, []int{1, 1}, lost)
}
