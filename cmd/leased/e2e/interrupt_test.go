//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// A command that waits ends with the exit code of its signal, and leaves no waiter.
func TestInterruptedCommands(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	must(t, env, leased, "acquire", "busy", "--ttl=10m", "--holder=first")
	for name, args := range map[string][]string{
		"acquire": {"acquire", "busy", "--wait=10m"},
		"run":     {"run", "busy", "--", "true"},
		"watch":   {"watch", "busy"},
	} {
		for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			p := start(t, env, append([]string{leased}, args...)...)
			if name == "watch" {
				p.says("granted")
			} else {
				queued(t, env, "busy", 1)
			}
			p.signal(signal)
			require.Equal(t, code, p.code(), "%s: %s", name, &p.output)
			queued(t, env, "busy", 0)
		}
	}
	must(t, env, leased, "policy", "set", "busy/*", "--mode=correctness")
}

// An interrupted backup leaves no file behind.
func TestInterruptedSnapshot(t *testing.T) {
	t.Parallel()
	server, api := single(t)
	server.stop()
	dir := t.TempDir()
	files := func() int {
		found, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(found)
	}
	p := start(t, endpoint(api), leased, "snapshot", "save", filepath.Join(dir, "backup.snap"))
	eventually(t, func() bool { return files() == 1 }, "for the temporary file")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 143, p.code())
	require.Zero(t, files())
}

// Without a majority, commands say how many members answer and how many are needed.
func TestLostMajority(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	must(t, c.env(), leased, "acquire", "a", "--ttl=10m")
	for _, i := range []int{1, 2} {
		c.servers[i].signal(syscall.SIGKILL)
		c.servers[i].code()
	}
	const says = "1 of 3 members answered; a majority (2) is needed; see 'leased cluster status'"
	for name, args := range map[string][]string{
		"acquire":  {"acquire", "b"},
		"inspect":  {"inspect", "a"},
		"policies": {"policy", "show"},
	} {
		for _, env := range [][]string{endpoint(c.apis[0]), c.env()} {
			var out string
			var code int
			eventually(t, func() bool { // until the leader has noticed
				out, code = call(t, env, append([]string{leased}, args...)...)
				require.Contains(t, []int{0, 122, 123}, code, out)
				return strings.Contains(out, "leased: no leader: "+says)
			}, "for the error of %s", name)
			require.Equal(t, 1, strings.Count(strings.TrimSpace(out), "\n")+1, "one line: %s", out)
		}
	}
	out, code := call(t, c.env(), leased, "run", "b", "--wait=3s", "-q", "--", "true")
	require.Equal(t, 122, code, out)
	require.Contains(t, out, says)
}

// A command that reaches a follower and not the leader says so: the cluster has not lost its majority.
func TestUnreachableLeader(t *testing.T) {
	t.Parallel()
	apis := []string{testserver.FreeAddr(t), testserver.FreeAddr(t)}
	start(t, nil, leased, "serve", "--id=a", "--data="+t.TempDir()+"/a", "--bootstrap-expect=1", "--listen="+apis[0],
		"--raft-listen=127.0.0.1:0", "--advertise="+testserver.FreeAddr(t)) // where nobody listens
	healthy(t, apis[0])
	start(t, nil, leased, "serve", "--id=b", "--data="+t.TempDir()+"/b", "--join="+apis[0], "--listen="+apis[1],
		"--raft-listen=127.0.0.1:0")
	healthy(t, apis[1])
	for _, args := range [][]string{{"list"}, {"run", "a", "--wait=1s", "--", "true"}} {
		out, code := call(t, endpoint(apis[1]), append([]string{leased}, args...)...)
		require.Equal(t, 122, code, out)
		require.Contains(t, out, "answered; member a leads, and cannot be reached from here")
		require.NotContains(t, out, "majority")
	}
}

// Durations of 0 do not stand for the default.
func TestZeroDurations(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	for _, args := range [][]string{
		{"run", "a", "--ttl=0s", "--", "true"}, {"run", "a", "--ttl=-1s", "--", "true"},
		{"run", "a", "--wait=0s", "--", "true"},
		{"acquire", "a", "--ttl=0s"}, {"acquire", "a", "--ttl=-1s"}, {"policy", "set", "a*", "--mode=correctness",
			"--ttl=0s"},
	} {
		out, code := call(t, env, append([]string{leased}, args...)...)
		require.Equal(t, 2, code, "%v: %s", args, out)
		require.Regexp(t, "must be above 0|use a duration", out)
	}
}
