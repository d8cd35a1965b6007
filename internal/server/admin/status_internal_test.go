package admin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A member is ready if it is at most a few entries behind.
func TestBehind(t *testing.T) {
	t.Parallel()
	require.Empty(t, behind(false, 0))
	require.Empty(t, behind(false, maxBacklog))
	require.Equal(t, "is catching up with the log: 1001 entries are missing", behind(false, maxBacklog+1))
	require.Equal(t, "is joining the cluster and has not caught up with its log", behind(true, 0))
}
