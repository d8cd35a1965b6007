package settings

import (
	"cmp"
	goflag "flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = goflag.Bool("update", false, "write the table of settings into docs/CONFIGURATION.md")

// The table of settings in docs/CONFIGURATION.md lists all settings, with their defaults.
func TestSettingsAreDocumented(t *testing.T) {
	const path, begin, end = "../../../../docs/CONFIGURATION.md",
		"<!-- settings: go test ./cmd/leased/internal/settings -update -->\n", "<!-- end of settings -->\n"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	table, after, found := strings.Cut(rest, end)
	require.True(t, found)

	var want strings.Builder
	want.WriteString("| setting | default | meaning |\n|---|---|---|\n")
	for _, k := range new(Settings).keys() {
		usage := strings.TrimSpace(strings.ReplaceAll(k.usage, "|", "\\|"))
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", k.name, cmp.Or(k.fallback, "none"), usage)
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o600))
		return
	}
	require.Equal(t, want.String(), table,
		"run go test ./cmd/leased/internal/settings -run TestSettingsAreDocumented -update")
}
