package redlockadapter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

func TestRaiseFloor(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = 500 * time.Millisecond
	f.init(t)
	b := f.backend(t)
	k := newTaker(t, b)
	k.take() // the lock has a counter of its own
	const above = fencing.Token(1_000_000)
	require.NoError(t, b.RaiseFloor(patient(t), above))
	require.True(t, k.take().Newer(above), "also for a lock that has been used")
	require.NoError(t, b.RaiseFloor(patient(t), 5), "a floor is never lowered")
	require.True(t, k.take().Newer(above))
	require.ErrorIs(t, b.RaiseFloor(patient(t), fencing.MaxToken), lease.ErrInvalid)

	const higher = 2 * above
	require.NoError(t, b.RaiseFloor(patient(t), higher))
	for _, node := range f.config.Nodes { // one after the other forgets everything
		c := redis.NewClient(node)
		require.NoError(t, c.FlushAll(patient(t)).Err())
		require.NoError(t, c.Close())
		k.take() // someone has to notice
		require.Eventually(t, func() bool { return healthy(b) }, patience, 10*time.Millisecond)
	}
	require.True(t, newTaker(t, b).take().Newer(higher), "an emptied node is told the floor when it comes back")

	f.servers[0].Kill()
	f.servers[1].Kill()
	require.ErrorIs(t, b.RaiseFloor(patient(t), 3*above), lease.ErrUnavailable)
}
