package storagegate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// FuzzEscape checks that two resources never share a file, on any file system, and
// that no name leaves its folder.
func FuzzFileName(f *testing.F) {
	f.Add("a", "A")
	f.Add("../x", "..%2fx")
	f.Add(strings.Repeat("x", 300), strings.Repeat("x", 301))
	f.Add(".", "%2e")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := storagegate.FileName(fencing.Resource(a)), storagegate.FileName(fencing.Resource(b))
		require.Equal(t, a == b, strings.EqualFold(x, y), "%q and %q", a, b)
		require.Equal(t, strings.ToLower(x), x)
		require.False(t, strings.ContainsAny(x, "/\\\x00:"))
		require.False(t, strings.HasPrefix(x, "."))
		require.LessOrEqual(t, len(x), 200)
	})
}
