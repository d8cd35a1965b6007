//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The policies of the file are the first ones of a new cluster. Later neither a
// restart nor SIGHUP undoes what an operator set or deleted by command. The difference
// is shown, and a command applies the file.
func TestFilePoliciesUndoNoCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte("policies:\n"+
		"  - {prefix: set/, mode: correctness, ttl: 20s}\n  - {prefix: deleted/, mode: correctness, ttl: 30s}\n  - "+
		"{prefix: same/, mode: correctness}\n"), 0o600))
	args := []string{"--config=" + file, "--data=" + filepath.Join(dir, "data")}
	p, api := single(t, args...)
	env := endpoint(api)
	show := func() string { return must(t, env, leased, "policy", "list") }
	eventually(t, func() bool { return len(show()) > 0 && countOf(show(), " same") == 3 }, "for the policies of the file")
	require.NotContains(t, show(), "differs")

	must(t, env, leased, "policy", "set", "set/*", "--ttl=50s")
	must(t, env, leased, "policy", "set", "new/*", "--mode=correctness")
	must(t, env, leased, "policy", "delete", "deleted/*")
	check := func() {
		t.Helper()
		out := show()
		require.Regexp(t, `set/\* +correctness +50s .*differs: ttl 20s`, out)
		require.Regexp(t, `deleted/\* +not in effect .*only in the file`, out)
		require.Regexp(t, `new/\* +correctness .*not in the file`, out)
		require.Regexp(t, `same/\* +correctness .* same`, out)
		require.Contains(t, out, "The file of member one differs from the policies in effect; `leased policy apply FILE` "+
			"applies a file.")
	}
	check()
	p.signal(syscall.SIGHUP)
	p.says("policies of the configuration file differ from those of the cluster")
	p.says("set/*,deleted/*")
	check()

	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	p, api = single(t, args...)
	env = endpoint(api)
	p.says("policies of the configuration file differ from those of the cluster")
	check()

	out := must(t, env, leased, "policy", "apply", file)
	require.Contains(t, out, "locks same/* already have this policy")
	out = show()
	require.Regexp(t, `set/\* +correctness +20s .* same`, out)
	require.Regexp(t, `deleted/\* +correctness +30s .* same`, out)
	require.Regexp(t, `new/\* +correctness .*not in the file`, out, "apply deletes nothing")
	require.NotContains(t, out, "differs")

	require.NoError(t, os.WriteFile(file, []byte("policies:\n  - {prefix: set/, mode: correctness, ttl: 0s}\n"), 0o600))
	out, code := call(t, env, leased, "policy", "apply", file)
	require.Equal(t, 2, code)
	require.Contains(t, out, "policies: ttl (0s, from "+file+":2) must be above 0")
	_, code = call(t, env, leased, "policy", "apply", filepath.Join(dir, "none"))
	require.Equal(t, 2, code)
}
