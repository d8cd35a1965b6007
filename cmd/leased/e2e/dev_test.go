//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// dev starts `leased dev` on a folder.
func dev(t *testing.T, data string, args ...string) (*process, string) {
	t.Helper()
	api := testserver.FreeAddr(t)
	p := start(t, nil, append([]string{leased, "dev", "--data=" + data, "--listen=" + api, "--raft-listen=127.0.0.1:0"},
		args...)...)
	p.says("Ctrl-C stops everything")
	t.Cleanup(func() { // the Redis servers write to the folder until they exit
		p.signal(syscall.SIGINT)
		p.code()
	})
	return p, api
}

// answer is the response of the API to an acquire.
type answer struct {
	Resource, SessionID, Mode, TTL string
	Token                          uint64
	Code, Message                  string
}

func post(t *testing.T, api, method, body string) (answer, error) {
	t.Helper()
	var text string
	err := curl(t, "http://"+api+"/leased.v1.LeaseService/"+method, body, &text)
	var a answer
	require.NoError(t, json.Unmarshal([]byte(text), &a), text)
	return a, err
}

// The commands that dev prints work.
func TestDevPrintsWorkingCommands(t *testing.T) {
	t.Parallel()
	p, api := dev(t, filepath.Join(t.TempDir(), "dev"))
	var printed []string
	for line := range strings.Lines(p.output.String()) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			printed = append(printed, strings.TrimSpace(command))
		}
	}
	require.Len(t, printed, 5, p.output.String())
	want := []string{`my token is \d+`, `"resource":"account/7".*"token":\d+`, `the gate refused its late write`,
		`account/7`, `alice  is rejected: stale fencing token`}
	// A shorter load suffices, and a busy machine must not take longer than the lease of account/7.
	shorter := strings.NewReplacer("--duration 2m", "--duration 15s", `"ttl":"30s"`, `"ttl":"5m"`)
	for i, command := range printed {
		require.Regexp(t, want[i], must(t, nil, "sh", "-c", shorter.Replace(command)))
		if i == 1 {
			require.Contains(t, must(t, endpoint(api), leased, "inspect", "account/7"), "account/7: held, mode correctness")
		}
	}
	require.Contains(t, p.output.String(), "Dashboard: http://"+api+"/\n")
}

// Ctrl-C ends dev also while it waits for a redis-server that does not answer.
func TestDevIsInterruptedWhileItStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis-server"), []byte("#!/bin/sh\n"+
		`[ "$1" = --version ] && exec echo "Redis server v=7.2.0"; : > "$0.started"; exec sleep 1000`), 0o700))
	p := start(t, []string{"PATH=" + dir + ":/usr/bin:/bin"}, leased, "dev", "--data="+filepath.Join(dir, "dev"),
		"--listen=127.0.0.1:0", "--raft-listen=127.0.0.1:0")
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "redis-server.started"))
		return err == nil
	}, "for the process")
	p.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), p.code(), &p.output)
}

// curl and the command line acquire, renew and release the same locks.
func TestDevWithCurlAndCommands(t *testing.T) {
	t.Parallel()
	_, api := dev(t, filepath.Join(t.TempDir(), "dev"))
	env := endpoint(api)
	got, err := post(t, api, "Acquire", `{"resource":"account/7","ttl":"1m","holder":"curl"}`)
	require.NoError(t, err)
	require.NotZero(t, got.Token)
	out, code := call(t, env, leased, "acquire", "account/7")
	require.Equal(t, 120, code)
	require.Contains(t, out, "lock is held")
	require.Contains(t, must(t, env, leased, "inspect", "account/7"), "curl")
	require.Contains(t, must(t, env, leased, "list", "account/"), "account/7")
	_, err = post(t, api, "Renew", fmt.Sprintf(`{"sessionId":%q}`, got.SessionID))
	require.NoError(t, err)
	_, err = post(t, api, "Release", fmt.Sprintf(`{"resource":"account/7","token":%d}`, got.Token))
	require.NoError(t, err)

	var taken answer
	require.NoError(t, json.Unmarshal([]byte(must(t, env, leased, "acquire", "account/7", "--ttl=1m", "--output=json")),
		&taken))
	require.Greater(t, taken.Token, got.Token)
	refused, err := post(t, api, "Acquire", `{"resource":"account/7"}`)
	require.Error(t, err)
	require.Equal(t, "held", refused.Code)
	out, code = call(t, env, "sh", "-c", `"$0" acquire account/7 --output=json 2>/dev/null`, leased)
	require.Equal(t, 120, code)
	var printed struct {
		Error struct {
			Code   string
			HeldBy struct{ Token uint64 }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &printed), out)
	require.Equal(t, "held", printed.Error.Code)
	require.Equal(t, taken.Token, printed.Error.HeldBy.Token)
	out, code = call(t, env, "sh", "-c", `"$0" renew account/7 --output=json 2>/dev/null`, leased)
	require.Equal(t, 2, code)
	require.NoError(t, json.Unmarshal([]byte(out), &printed), out)
	require.Equal(t, "invalid", printed.Error.Code)
	must(t, env, leased, "release", "account/7", fmt.Sprintf("--token=%d", taken.Token))
	require.Contains(t, must(t, env, leased, "inspect", "account/7"), "free")
}

// acquireFast acquires a lock in efficiency mode. On a busy machine, the Redis nodes of dev may answer too late.
func acquireFast(t *testing.T, api string) (got answer) {
	t.Helper()
	eventually(t, func() bool {
		var err error
		got, err = post(t, api, "Acquire", `{"resource":"fast/7"}`)
		return err == nil
	}, "for a lock; the last answer was %+v", &got)
	require.Equal(t, "efficiency", got.Mode)
	return got
}

// Ctrl-C stops everything. Policies and locks survive a restart; the Redis nodes are
// new, with larger tokens.
func TestDevRestart(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "dev")
	p, api := dev(t, data, "--redis=server")
	first, err := post(t, api, "Acquire", `{"resource":"account/7","ttl":"10m"}`)
	require.NoError(t, err)
	must(t, endpoint(api), leased, "policy", "set", "fast/*", "--mode=efficiency")
	fast := acquireFast(t, api)
	require.Greater(t, fast.Token, first.Token)
	servers := regexp.MustCompile(`redis-server processes at (.*)`).FindStringSubmatch(p.output.String())
	require.Len(t, servers, 2, p.output.String())
	addresses := strings.Fields(servers[1])
	require.Len(t, addresses, 5)
	p.signal(syscall.SIGINT)
	require.Zero(t, p.code(), p.output.String())
	for _, address := range append(addresses, api) {
		_, err := net.Dial("tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "%s still accepts connections", address)
	}

	p, api = dev(t, data, "--redis=server")
	require.Contains(t, must(t, endpoint(api), leased, "inspect", "account/7"), fmt.Sprint(first.Token))
	next, err := post(t, api, "Acquire", `{"resource":"account/8"}`)
	require.NoError(t, err)
	require.Greater(t, next.Token, first.Token)
	require.Greater(t, acquireFast(t, api).Token, fast.Token)
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code(), p.output.String())
}

// Without redis-server dev runs without efficiency mode and says what to install.
func TestDevWithoutRedis(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	api := testserver.FreeAddr(t)
	p := start(t, []string{"PATH=" + path}, leased, "dev", "--data="+filepath.Join(path, "dev"), "--listen="+api,
		"--raft-listen=127.0.0.1:0")
	p.says("efficiency mode: off: redis-server is not installed; on Debian or Ubuntu: apt-get install redis-server")
	p.says("Ctrl-C stops everything")
	defer func() { p.signal(syscall.SIGINT); p.code() }()
	must(t, endpoint(api), leased, "acquire", "job/1")
	require.Contains(t, exits(t, 1, endpoint(api), leased, "redis", "status"), "leased redis fleet set")
}

// A second dev on the same folder fails before it starts anything.
func TestDevLocksItsFolder(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "dev")
	_, api := dev(t, data)
	out, code := call(t, nil, leased, "dev", "--data="+data, "--listen="+testserver.FreeAddr(t),
		"--raft-listen=127.0.0.1:0")
	require.Equal(t, 1, code)
	require.Contains(t, out, "is in use by another `leased dev`")
	must(t, endpoint(api), leased, "policy", "set", "fast/*", "--mode=efficiency")
	must(t, endpoint(api), leased, "acquire", "fast/1")
}
