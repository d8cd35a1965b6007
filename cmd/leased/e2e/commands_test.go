//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// Policies are set, shown and deleted, and apply to locks.
func TestPolicyCommands(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	require.Contains(t, must(t, env, leased, "policy", "set", "job/*", "--mode=correctness", "--ttl=42s"),
		"locks job/* have mode correctness")
	require.Regexp(t, `job/\* +correctness +42s`, must(t, env, leased, "policy", "show"))
	require.Contains(t, must(t, env, leased, "acquire", "job/1", "--output=json"), `"ttl": "42s"`)
	require.Contains(t, must(t, env, leased, "policy", "delete", "job/*"), "deleted the policy of job/*")
	require.NotContains(t, must(t, env, leased, "policy", "show"), "job/")
	require.Contains(t, must(t, env, leased, "acquire", "job/2", "--output=json"), `"ttl": "10s"`)
	out, code := call(t, env, leased, "policy", "delete", "job/*")
	require.Equal(t, 2, code)
	require.Contains(t, out, `no policy for "job/"; see 'leased policy show'`)
	out, code = call(t, env, leased, "redis", "status")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "leased redis fleet set")
}

// `policy set` keeps the fields that are not given, and needs a star for all locks.
func TestPolicySetKeepsTheRest(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "job/*", "--mode=correctness", "--ttl=42s", "--lock-delay=3s")
	must(t, env, leased, "policy", "set", "job/*", "--renew=5s")
	require.Regexp(t, `job/\* +correctness +42s +5s +- +3s`, must(t, env, leased, "policy", "show"))
	out, code := call(t, env, leased, "policy", "set", "", "--mode=correctness")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "give '*'")
	must(t, env, leased, "policy", "set", "*", "--mode=correctness")
}

// Ctrl-C ends the wait for a lock with the exit code that a shell expects.
func TestAcquireIsInterrupted(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	tokenOf(t, env, "job/1", "--ttl=1m")
	p := start(t, env, leased, "acquire", "job/1", "--wait=1m")
	queued(t, env, "job/1", 1)
	p.signal(syscall.SIGINT)
	require.Equal(t, 128+int(syscall.SIGINT), p.code())
}

// A lease whose token could not be printed is released: nobody could.
func TestUnprintedLeaseIsReleased(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	closed, err := os.Open(os.DevNull) // it cannot be written to
	require.NoError(t, err)
	defer closed.Close()
	reader, unread, err := os.Pipe() // it has no reader
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer unread.Close()
	for _, output := range []*os.File{closed, unread} {
		for _, name := range []string{"acquire", "lock"} {
			command := exec.Command(leased, name, "job/1", "--ttl=10m")
			command.Env, command.Stdout = append(os.Environ(), env...), output
			require.Error(t, command.Run())
			require.Contains(t, must(t, env, leased, "inspect", "job/1"), "job/1: free", "%s to %s", name, output.Name())
		}
	}
}

// A new member that found no cluster joins on command.
func TestClusterJoin(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	other := testserver.FreeAddr(t)
	start(t, nil, leased, "serve", "--id=two", "--data="+filepath.Join(t.TempDir(), "two"), "--listen="+other,
		"--raft-listen=127.0.0.1:0",
		"--join=127.0.0.1:1").says("waiting to form a cluster")
	out, code := call(t, endpoint(other), leased, "cluster", "join", "127.0.0.1:1")
	require.Equal(t, 122, code, out)
	require.Contains(t, out, "no member answers at 127.0.0.1:1")
	eventually(t, func() bool { // if the answer is lost, it has joined when the command runs again
		out, code = call(t, endpoint(other), leased, "cluster", "join", api)
		return code == 0 && strings.Contains(out, "joined the cluster of "+api) ||
			code == 2 && strings.Contains(out, "already belongs to a cluster of ")
	}, "for the member to join; the command printed:\n%s", lazy(func() string { return out }))
	healthy(t, other)
	members := regexp.MustCompile(`(?m)^one +leader +yes .* ` + api + `(?s:.*)^two +follower +yes .* ` + other)
	eventually(t, func() bool {
		out = must(t, endpoint(other), leased, "cluster", "status")
		return members.MatchString(out)
	}, "for two voters; the status is:\n%s", lazy(func() string { return out }))
	out, code = call(t, endpoint(other), leased, "cluster", "join", api)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "already belongs to a cluster of 2")
}

// Every member knows the API addresses of all members.
func TestStatusShowsAllAPIs(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	for _, api := range c.apis {
		eventually(t, func() bool {
			var text string
			require.NoError(t, curl(t, "http://"+api+"/v1/status", "{}", &text))
			var status struct{ Members []struct{ APIAddress string } }
			require.NoError(t, json.Unmarshal([]byte(text), &status))
			var known []string
			for _, m := range status.Members {
				known = append(known, m.APIAddress)
			}
			return len(known) == 3 && strings.Contains(strings.Join(known, " "), c.apis[0]) &&
				strings.Contains(strings.Join(known, " "), c.apis[1]) && strings.Contains(strings.Join(known, " "), c.apis[2])
		}, "for %s to know all members", api)
	}
}

// A single member rejects commands that need more members, and keeps leading.
func TestCommandsOnSingleMember(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	for want, args := range map[string][]string{
		"there is no other voter":           {"cluster", "transfer"},
		`there is no member "x"`:            {"cluster", "remove", "x"},
		"it is the only voter":              {"cluster", "remove", "one"},
		"already belongs to a cluster of 1": {"cluster", "join", api},
		"acquire needs resource":            {"acquire", ""},
		"is for correctness mode":           {"policy", "set", "x*", "--mode=efficiency", "--lock-delay=1s"},
		"must be from 10ms to 24h0m0s":      {"acquire", "x", "--ttl=1ms"},
	} {
		out, code := call(t, env, append([]string{leased}, args...)...)
		require.Equal(t, 2, code, "%v: %s", args, out)
		require.Contains(t, out, want)
	}
	require.Contains(t, must(t, env, leased, "cluster", "status", "--output=json"), `"generation": 1`,
		"the member has lost leadership")
}

// Every command that prints something supports --output json.
func TestJSONOfEveryCommand(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	file := filepath.Join(t.TempDir(), "snapshot")
	token := tokenOf(t, env, "job/1", "--ttl=1m")
	other := tokenOf(t, env, "job/2", "--ttl=1m")
	for _, args := range [][]string{
		{"inspect", "job/1"}, {"list"}, {"renew", "job/1", "--token=" + token}, {"release", "job/1", "--token=" + token},
		{"break", "job/2", "--token=" + other},
		{"policy", "set", "job/*", "--mode=correctness"}, {"policy", "show"}, {"policy", "delete", "job/*"},
		{"cluster", "status"},
		{"snapshot", "save", file}, {"snapshot", "inspect", file}, {"snapshot", "restore", file, "--yes"}, {"version"},
	} {
		out := must(t, env, append(append([]string{leased}, args...), "--output=json")...)
		require.True(t, json.Valid([]byte(out)), "%v: %s", args, out)
		require.True(t, strings.HasPrefix(out, "{"), "%v: %s", args, out)
	}
}
