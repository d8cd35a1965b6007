package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"
)

// Names in a table cannot control the terminal or break its lines.
func TestRowEscapesNames(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row(w, "RESOURCE", "HOLDER")
	row(w, "a\x1b[2J", "b\n\u202ec\td")
	row(w, "", 7)
	require.NoError(t, w.Flush())
	require.Equal(t, "RESOURCE  HOLDER\na\\x1b[2J  b\\x0a\\u202ec\\x09d\n-         7\n", out.String())
}
