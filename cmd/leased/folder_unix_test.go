//go:build unix

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFolderIsLockedOnce(t *testing.T) {
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
