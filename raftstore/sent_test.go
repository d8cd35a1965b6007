package raftstore

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
)

// slowDisk takes a virtual moment for each write once it is slow.
type slowDisk struct {
	raft.LogStore
	slow *atomic.Bool
}

const slowWrite = time.Second

func (d slowDisk) StoreLogs(logs []*raft.Log) error {
	if d.slow.Load() {
		pass(slowWrite)
	}
	return d.LogStore.StoreLogs(logs)
}

// The time of a session counts from before it was asked for, or renewed, however
// long the answer takes: the leader may have begun to count at once.
func TestTheTimeOfASessionCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		c := startMemory(t, 1, func(c *Config) { c.Storage.Log = slowDisk{c.Storage.Log, &slow} })
		slow.Store(true)
		ctx, clock := testContext(t), engine.MonotonicClock()

		opened := clock.Now()
		s := openSession(t, c.backend(), time.Minute)
		require.GreaterOrEqual(t, clock.Now().Since(opened), slowWrite, "the answer took its time")
		grant, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.Equal(t, opened, grant.Sent)

		pass(2 * lessor.ProofLife) // so that the leader has to prove itself first
		renewed := clock.Now()
		_, err = s.Renew(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, clock.Now().Since(renewed), slowWrite)
		grant, err = s.Acquire(ctx, lockRequest(2, "b"))
		require.NoError(t, err)
		require.Equal(t, renewed, grant.Sent)

		pass(2 * lessor.ProofLife)
		found := clock.Now()
		again, err := c.backend().Attach(ctx, s.(*Session).config)
		require.NoError(t, err)
		require.GreaterOrEqual(t, clock.Now().Since(found), slowWrite)
		grant, err = again.Acquire(ctx, lockRequest(3, "c"))
		require.NoError(t, err)
		require.Equal(t, found, grant.Sent)
	})
}

// Two restores of one snapshot begin at the same place. What the first of them
// went on to give must not come again after the second, or a late call of a
// session that has ended would pass for one of its successor.
func TestNoIncarnationIsGivenAgainAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		ctx := testContext(t)
		first := openSession(t, c.backend(), time.Hour).(*Session)
		var saved bytes.Buffer
		_, err := c.leader().SaveSnapshot(ctx, &saved)
		require.NoError(t, err)
		given := []*Session{first}
		for range 3 {
			_, err := c.leader().RestoreSnapshot(ctx, bytes.NewReader(saved.Bytes()))
			require.NoError(t, err)
			c.leader()
			next := openSameSession(t, c, first).(*Session)
			_, err = next.Acquire(ctx, lockRequest(1, "a"))
			require.NoError(t, err)
			for _, former := range given {
				require.Greater(t, next.Incarnation(), former.Incarnation())
				_, err = former.Renew(ctx)
				require.ErrorIs(t, err, engine.ErrExpired)
				require.NoError(t, former.Release(ctx, 1), "late")
			}
			status, err := c.backend().Inspect(ctx, "a")
			require.NoError(t, err)
			require.Len(t, status.Holders, 1, "what is of the former sessions has no effect on the present one")
			given = append(given, next)
		}
	})
}

// Who chooses no clock has the one that goes on in suspend: by the other a leader
// that slept would take its proof of leadership for fresh.
func TestANodeCountsSuspendUnlessToldOtherwise(t *testing.T) {
	require.Equal(t, engine.SystemClock(), Config{}.filled().Clock)
	require.NotEqual(t, engine.MonotonicClock(), Config{}.filled().Clock)
}
