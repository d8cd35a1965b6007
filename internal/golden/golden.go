package golden

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update rewrites the files. A frozen file must never change after the first release: see
// docs/adr/0030-frozen-formats.md.
var update = flag.Bool("update", false, "write the files in testdata/golden-v1 instead of comparing; never for a "+
	"released format")

// folder has the files of a package.
const folder = "testdata/golden-v1"

// lineBytes is the number of bytes in a line of hexadecimal digits.
const lineBytes = 32

// Updating reports whether the test writes the files.
func Updating() bool { return *update }

// Text compares a text with a file, and returns the content of the file.
func Text(t testing.TB, name, got string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if *update {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := string(Read(t, name))
	require.Equal(t, want, got, "%s is frozen; a change needs a new version of the format, see "+
		"docs/adr/0030-frozen-formats.md", path)
	return want
}

// Hex compares bytes with a file of hexadecimal digits, and returns the bytes of the
// file.
func Hex(t testing.TB, name string, got []byte) []byte {
	t.Helper()
	var lines strings.Builder
	for rest := got; len(rest) > 0; {
		n := min(lineBytes, len(rest))
		lines.WriteString(hex.EncodeToString(rest[:n]) + "\n")
		rest = rest[n:]
	}
	want, err := hex.DecodeString(strings.ReplaceAll(Text(t, name, lines.String()), "\n", ""))
	require.NoError(t, err)
	return want
}

// Read returns the content of a file.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err, "run the test with -update to create the file")
	return data
}
