package admin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A member is ready if it is at most a few entries behind.
func TestBehind(t *testing.T) {
	t.Parallel()
	require.Empty(t, behind(false, true, 0))
	require.Empty(t, behind(false, true, maxBacklog))
	require.Equal(t, "has not learned yet how many log entries are missing", behind(false, false, 0))
	require.Equal(t, "is catching up with the log: 1001 entries are missing", behind(false, true, maxBacklog+1))
	require.Equal(t, "is joining the cluster and has not caught up with its log", behind(true, true, 0))
}
