package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// Commit keeps the former file if the new one cannot be synced.
func TestCommitSyncsFirst(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	require.NoError(t, settings.Replace(path, []byte("former"), 0o640))
	file, err := os.Create(filepath.Join(folder, "fresh"))
	require.NoError(t, err)
	require.NoError(t, file.Close()) // it cannot be synced any longer
	require.ErrorIs(t, settings.Commit(file, path), os.ErrClosed)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "former", string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}
