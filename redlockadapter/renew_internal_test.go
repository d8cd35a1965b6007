package redlockadapter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A release that overtakes a renewal refuses a late copy of it on the nodes that were not asked
// before, and an attempt that has ended is not renewed there. Otherwise such a node would keep the
// lock for a TTL.
func TestRenewalOfAnEndingAttempt(t *testing.T) {
	t.Parallel()
	const first, rest = 0b00111, 0b11000
	a := &attempt{complete: make(chan struct{}), accepted: first, unasked: rest}
	require.True(t, a.askedAll())
	_, unanswered, unasked := a.end()
	require.EqualValues(t, rest, unanswered)
	require.Zero(t, unasked)

	a = &attempt{complete: make(chan struct{}), accepted: first, unasked: rest}
	_, _, unasked = a.end()
	require.EqualValues(t, rest, unasked)
	require.False(t, a.askedAll())
	require.EqualValues(t, rest, a.unasked)
}

// After a pause of the process, a lease that may be over is not sent to further nodes.
func TestOldGrantsAreNotSpread(t *testing.T) {
	t.Parallel()
	clock := engine.MonotonicClock()
	a := &attempt{Held: engine.Held{TTL: time.Second}, unasked: 0b11000}
	s := &spread{clock: clock, queue: []spreading{{a, clock.Now().Add(-time.Minute)}}}
	s.run()
	require.EqualValues(t, 0b11000, a.unasked)
	require.Empty(t, s.queue)
}
