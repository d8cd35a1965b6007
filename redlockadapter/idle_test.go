package redlockadapter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// Locks that nobody uses are forgotten, so that nothing leaks; tokens do not go
// back, and a lock that is held stays held.
func TestIdleLocksAreForgotten(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL, f.config.IdleCounters = 400*time.Millisecond, 400*time.Millisecond
	f.init(t)
	b := f.backend(t)
	keeper, err := lease.New(b, lease.WithPolicies(lease.Policy{TTL: 400 * time.Millisecond}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, keeper.Close(patient(t))) })
	held, err := keeper.Acquire(patient(t), "held")
	require.NoError(t, err)
	k := newTaker(t, b)
	for range 5 {
		k.take()
	}
	known := func(field string) bool { return f.known(t, field) }
	require.True(t, known(":taken"))
	require.Eventually(t, func() bool { return !known(":taken") }, patience, 10*time.Millisecond)
	k.take()
	require.True(t, known(":held"))
	if held.Err() == nil { // the machine was not too slow to renew it
		_, err = keeper.TryAcquire(patient(t), "held")
		require.ErrorIs(t, err, lease.ErrHeld)
	}
}

// known reports whether a node knows of a lock.
func (f *fleet) known(t *testing.T, field string) bool {
	t.Helper()
	for _, node := range f.config.Nodes {
		c := redis.NewClient(node)
		defer c.Close()
		for _, key := range []string{hashOf(t, c), "{leased}:old"} {
			exists, err := c.HExists(patient(t), key, field).Result()
			require.NoError(t, err)
			if exists {
				return true
			}
		}
	}
	return false
}
