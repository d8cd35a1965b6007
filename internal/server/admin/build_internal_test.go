package admin

import (
	"os"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildInfo(t *testing.T) {
	b := BuildInfo("v1.2.3")
	require.Equal(t, "v1.2.3", b.Version)
	require.Equal(t, runtime.Version(), b.GoVersion)
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, b.Platform)
	require.NotEmpty(t, BuildInfo("").Version)
	for name, version := range b.Formats {
		first := 1
		if name == "append-entries" {
			first = 2 // version 1 was never released
		}
		require.EqualValues(t, first, version, name)
	}
}

// The decision record names each format.
func TestFormatsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/adr/0030-frozen-formats.md")
	require.NoError(t, err)
	for name := range formats {
		require.Regexp(t, "`"+regexp.QuoteMeta(name)+"`", string(text))
	}
}
