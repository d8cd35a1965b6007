package filegate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// FuzzMark checks that the file of a mark has one form. A damaged file must never be
// read as a lower mark.
func FuzzMark(f *testing.F) {
	for _, text := range []string{"", "7", "7\n", "7\na", "7\na\n", "7\nb\n", "07\na\n", "7\na\n\n",
		"9007199254740992\na\n", "\n\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "mark")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		token, err := readMark(path, "a")
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			require.Equal(t, fencing.None, token)
			return
		}
		require.Equal(t, string(markText("a", token)), string(data))
	})
}
