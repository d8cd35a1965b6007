//go:build unix

package supervise

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// In a container, the group of a process that was started from outside is 0. That is not the group in the foreground
// of no terminal.
func TestNoTerminalHasNoForeground(t *testing.T) {
	require.Equal(t, -1, foreground(nil))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.Equal(t, -1, foreground(r))
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
}
