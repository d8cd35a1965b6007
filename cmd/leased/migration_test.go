package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time left is no part of the step: a step is printed once, not every second.
func TestNewStep(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]step{
		"a* is migrating; waiting for: leases in efficiency mode to end, 1m30s left": {"a* is migrating; waiting for: " +
			"leases in efficiency mode to end", 90 * time.Second},
		"3 nodes; not ready; waiting for: quarantine of Redis node r1, 29s left": {"3 nodes; not ready; waiting for: " +
			"quarantine of Redis node r1", 29 * time.Second},
		"waiting for: 2 holders": {"waiting for: 2 holders", 0},
	} {
		require.Equal(t, want, newStep(text))
	}
	require.Equal(t, "; 29s left", step{left: 29 * time.Second}.detail())
	require.Empty(t, step{}.detail())
}
