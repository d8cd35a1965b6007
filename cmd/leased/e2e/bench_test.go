//go:build unix

package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bench measures all workloads, and leaves no lock behind.
func TestBench(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	out := must(t, env, leased, "bench", "--work=own,contended,hold", "--workers=4", "--leases=40", "--duration=3s",
		"--warm-up=50ms")
	require.Contains(t, out, "loading the cluster with 4 workers")
	for _, work := range []string{"own", "contended", "hold"} {
		require.Regexp(t, `(?m)^`+work+` +correctness +4 +1 +\d+ .*ms .* 0$`, out)
	}
	out = must(t, env, leased, "bench", "--work=own", "--workers=3", "--clients=3", "--duration=3s", "--output=json")
	var got struct {
		Results []struct{ Pairs, Errors, Clients int }
	}
	require.NoError(t, json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &got), out)
	require.Len(t, got.Results, 1)
	require.Positive(t, got.Results[0].Pairs)
	require.Zero(t, got.Results[0].Errors)
	require.Equal(t, 3, got.Results[0].Clients)
	require.NotContains(t, must(t, env, leased, "list"), "bench/")
}

// Ctrl-C stops the bench, which prints what it has measured and releases its locks.
func TestBenchIsInterrupted(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	p := start(t, env, leased, "bench", "--work=hold", "--workers=2", "--leases=1000000")
	eventually(t, func() bool { return strings.Contains(must(t, env, leased, "list"), "/hold/") },
		"for a lock of the measurement")
	p.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), p.code())
	require.Regexp(t, `(?m)^hold +correctness +2 +1 `, p.output.String())
	require.NotContains(t, must(t, env, leased, "list"), "bench/")
}

// The bench refuses to start without the rights and the mode that it needs.
func TestBenchIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	alice := addUser(t, file, "alice", "--allow=acquire:load/*")
	_, api := single(t, "--users="+file)
	env := append(endpoint(api), "LEASED_SECRET="+alice)
	out := exits(t, 119, env, leased, "bench", "--duration=300ms")
	require.Contains(t, out, "leased bench needs the right acquire:bench/*")
	require.NotContains(t, out, "loading the cluster")
	out = exits(t, 124, env, leased, "bench", "--prefix=load/", "--mode=efficiency")
	require.Contains(t, out, "has mode correctness")
	must(t, env, leased, "bench", "--prefix=load/", "--work=own", "--workers=2", "--duration=3s")
	out = exits(t, 2, env, leased, "bench", "--clients=20")
	require.Contains(t, out, "--clients (20) must be between 1 and --workers (16)")
}
