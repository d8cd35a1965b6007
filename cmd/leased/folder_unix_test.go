//go:build unix

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder is used by one at a time, and by the next when that one has let go.
func TestAFolderIsLockedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	unlock, err := lockFolder(dir)
	require.NoError(t, err)
	_, err = lockFolder(dir)
	require.ErrorContains(t, err, "is in use by another `leased dev`")
	unlock()
	unlock, err = lockFolder(dir)
	require.NoError(t, err)
	unlock()
}
