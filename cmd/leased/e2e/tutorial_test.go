//go:build unix

package e2e

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// The commands of docs/TUTORIAL.md end with a stale write that PostgreSQL refuses.
func TestTutorial(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(testserver.Postgres(t).Addr)
	require.NoError(t, err)
	_, api := single(t)
	env := append(endpoint(api), "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres",
		"PATH="+filepath.Dir(leased)+":/usr/bin:/bin")
	out := must(t, env, "sh", "-c", "set -eu\ncd '"+t.TempDir()+"'\n"+strings.Join(blocks(t, "sh", "docs/TUTORIAL.md"),
		""))
	require.Contains(t, out, "stale")
	require.Contains(t, out, "Alice's write was refused")
	require.Contains(t, out, "\n150\n")
}
