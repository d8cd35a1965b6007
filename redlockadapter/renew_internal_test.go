package redlockadapter

import (
	"testing"

	"github.com/stretchr/testify/require"
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
