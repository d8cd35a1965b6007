//go:build unix

package supervise

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// In a PID namespace, the process group of a process that was started from outside is 0. Without a terminal, no group
// is in the foreground, so the two must not compare as equal.
func TestNoTerminalHasNoForeground(t *testing.T) {
	require.Equal(t, -1, foreground(nil))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.Equal(t, -1, foreground(r))
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
}
