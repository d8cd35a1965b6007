package filegate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
)

// TestGoldenMark checks that the file of a mark of version 1 is read and written as it
// was.
func TestGoldenMark(t *testing.T) {
	text := golden.Text(t, "mark.txt", string(markText("orders/42", 34)))
	path := filepath.Join(t.TempDir(), "mark")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	token, err := readMark(path, "orders/42")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(34), token)
}
