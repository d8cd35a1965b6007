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

// slowDisk delays each write, in virtual time, once it is slow.
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

// The TTL of a session counts from before the request to open or renew it was sent, however
// long the answer takes: the leader may have started to count immediately.
func TestSessionTimeCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		c := startMemory(t, 1, func(c *Config) { c.Storage.Log = slowDisk{c.Storage.Log, &slow} })
		slow.Store(true)
		ctx, clock := testContext(t), engine.MonotonicClock()

		opened := clock.Now()
		s := openSession(t, c.backend(), time.Minute)
		require.GreaterOrEqual(t, clock.Now().Since(opened), slowWrite, "the answer was slow")
		grant, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.Equal(t, opened, grant.Sent)

		pass(2 * lessor.ProofLife) // so that the leader needs a new proof first
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

// Two restores of one snapshot start from the same state. Incarnations that were assigned after
// the first restore must not be assigned again after the second. Otherwise a late call of an
// ended session would be accepted for its successor.
func TestRestoreReusesNoIncarnation(t *testing.T) {
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
				require.NoError(t, former.Release(ctx, engine.Held{Nonce: 1}), "late")
			}
			status, err := c.backend().Inspect(ctx, "a")
			require.NoError(t, err)
			require.Len(t, status.Holders, 1, "commands of former sessions have no effect on the current one")
			given = append(given, next)
		}
	})
}

// The default clock advances during suspend. With the other one, a leader would treat its proof
// of leadership as fresh after a suspend.
func TestNodeCountsSuspendByDefault(t *testing.T) {
	require.Equal(t, engine.SystemClock(), Config{}.filled().Clock)
	require.NotEqual(t, engine.MonotonicClock(), Config{}.filled().Clock)
}
