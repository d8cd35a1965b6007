package redlockadapter_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// lateClock is an hour later each time that someone looks.
type lateClock struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *lateClock) Now() lease.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += time.Hour
	return lease.NewInstant(time.Unix(1e9, 0).Add(c.now), c.now)
}

// Votes that took as long as the lease lasts are no grant, whatever their number,
// and are given back: the next one need not wait for their end.
func TestVotesThatTookTooLongAreNoGrant(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = 5 * time.Minute // longer than the patience of a test
	b := f.init(t).backend(t)
	slow, err := b.Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: f.config.MaxTTL, Clock: &lateClock{}})
	require.NoError(t, err)
	_, err = slow.Acquire(patient(t), request(1, "a"))
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.ErrorContains(t, err, "took longer")

	wanted := request(1, "a")
	wanted.Wait = true
	_, err = open(t, b, f.config.MaxTTL).Acquire(patient(t), wanted)
	require.NoError(t, err)
}
