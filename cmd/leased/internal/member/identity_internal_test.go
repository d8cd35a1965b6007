package member

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
)

// A data folder names the version of its format. A newer one is not opened.
func TestFormatOfTheDataFolder(t *testing.T) {
	s := &settings.Settings{ID: "one", Data: filepath.Join(t.TempDir(), "one")}
	path := filepath.Join(s.Data, identityFile)
	require.NoError(t, claim(t.Context(), s, &peers{}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	golden.Text(t, identityFile, string(text))
	require.NoError(t, claim(t.Context(), s, &peers{}))

	require.NoError(t, os.WriteFile(path, []byte(`{"format":2,"id":"one"}`), 0o600))
	err = claim(t.Context(), s, &peers{})
	var newer *engine.FormatError
	require.ErrorAs(t, err, &newer)
	require.Equal(t, engine.FormatError{Format: "data folder", Found: 2, Newest: 1}, *newer)
	require.ErrorContains(t, err, "upgrade to a build that reads version 2")

	require.NoError(t, os.WriteFile(path, []byte(`{"id":"one"}`), 0o600))
	require.ErrorIs(t, claim(t.Context(), s, &peers{}), ErrIdentity)

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	err = claim(t.Context(), s, &peers{})
	require.ErrorIs(t, err, ErrIdentity)
	require.ErrorContains(t, err, "leased cluster remove one")
}
