//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// addUser adds a user to a file and returns its secret.
func addUser(t *testing.T, file, name string, flags ...string) string {
	t.Helper()
	out, err := exec.Command(leased, append([]string{"user", "add", name, "--users=" + file}, flags...)...).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// reload sends SIGHUP and waits for a text in the log.
func (p *process) reload(says string) {
	p.t.Helper()
	before := strings.Count(p.output.String(), says)
	p.signal(syscall.SIGHUP)
	eventually(p.t, func() bool { return strings.Count(p.output.String(), says) > before }, "for the log to say %q", says)
}

// httpCode returns the HTTP status of a call.
func httpCode(t *testing.T, api, path string, headers ...string) string {
	t.Helper()
	args := []string{"-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/json", "-d",
		`{"resource":"a"}`}
	for _, h := range headers {
		args = append(args, "-H", h)
	}
	out, err := exec.CommandContext(t.Context(), "curl", append(args, "http://"+api+path)...).Output()
	require.NoError(t, err)
	return string(out)
}

// Calls without a secret are rejected, except for health. SIGHUP adds and removes
// users, and ends the calls in progress of removed ones; an invalid file changes
// nothing. Logs contain no secrets.
func TestUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "users.yaml")
	alice := addUser(t, file, "alice", "--admin")
	p, api := single(t, "--users="+file)
	env := func(secret string) []string { return append(endpoint(api), "LEASED_SECRET="+secret) }

	out, code := call(t, endpoint(api), leased, "list")
	require.Equal(t, 124, code, out)
	require.Contains(t, out, "--secret-file")
	out, code = call(t, endpoint(api), leased, "run", "nightly", "--", "true")
	require.Equal(t, 124, code, out)
	require.Equal(t, "401", httpCode(t, api, "/v1/acquire"))
	must(t, env(alice), leased, "run", "nightly", "--", "true")
	path := filepath.Join(dir, "alice.secret")
	require.NoError(t, os.WriteFile(path, []byte(alice+"\n"), 0o600))
	must(t, endpoint(api), leased, "list", "--secret-file="+path)
	require.Equal(t, "200", httpCode(t, api, "/v1/acquire", "Authorization: Bearer "+alice))
	out, code = call(t, env("hunter2"), leased, "list")
	require.Equal(t, 2, code)
	require.NotContains(t, out, "hunter2")
	out, code = call(t, []string{"LEASED_ENDPOINT=192.0.2.1:7420", "LEASED_SECRET=" + alice}, leased, "list")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "192.0.2.1:7420")

	for _, args := range [][]string{{"list", "--secret-file=" + alice}, {"user", "list", "--users=" + alice},
		{"user", "add", alice, "--users=" + file},
		{"user", "list", "--users=" + path}, {alice}, {"serve", "--data=x", "--bootstrap-expect=1", "--print-config",
			"--secret-file=" + alice}} {
		out, code := call(t, endpoint(api), append([]string{leased}, args...)...)
		require.NotZero(t, code, out)
		require.NotContains(t, out, alice, "%.12q", args)
	}
	for _, args := range [][]string{{"list"}, {"list", "--help"}, {"user", "list"}, {"user", "list", "--help"}} {
		out, _ := call(t, append(endpoint(api), "LEASED_CLIENT_SECRET_FILE="+alice, "LEASED_USERS="+alice),
			append([]string{leased}, args...)...)
		require.NotContains(t, out, alice, "%v", args)
	}
	must(t, append(endpoint(api), "LEASED_CLIENT_SECRET_FILE="+path), leased, "list")

	bob := addUser(t, file, "bob", "--admin")
	admin := "cluster, metrics, acquire:*, read:*, break:*, policy:*"
	require.Regexp(t, `^alice \(secrets [0-9a-f]{8}\): `+regexp.QuoteMeta(admin)+
		`\nbob \(secrets [0-9a-f]{8}\): `+regexp.QuoteMeta(admin)+`\n$`,
		must(t, nil, leased, "user", "list", "--users="+file))
	_, code = call(t, env(bob), leased, "list")
	require.Equal(t, 124, code, "only SIGHUP reloads the file")
	_, fresh := single(t, "--users="+file) // represents a member that was reloaded
	both := []string{"LEASED_ENDPOINT=" + api + "," + fresh, "LEASED_SECRET=" + bob}
	must(t, both, leased, "list")
	must(t, both, leased, "snapshot", "save", filepath.Join(dir, "snapshot"))
	must(t, both, leased, "run", "nightly", "--", "sh", "-c", `test -z "${LEASED_SECRET+set}"`)
	_, code = call(t, append(both[:1:1], "LEASED_SECRET="+strings.Replace(bob, "_", "_0", 1)[:len(bob)]), leased, "list")
	require.Equal(t, 124, code, "all members reject it")
	p.reload("reloaded the certificate")
	must(t, env(bob), leased, "list")

	watch := start(t, env(alice), leased, "watch", "x", "--output=json")
	watch.says("synced")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("- {name: bob, hashes: [hunter2]}\n"), 0o600))
	p.reload("reload failed")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.reload("the file is empty")
	must(t, env(alice), leased, "list")
	require.NoError(t, os.WriteFile(file, good, 0o600))
	must(t, nil, leased, "user", "remove", "alice", "--users="+file)
	p.reload("reloaded the certificate")
	require.Equal(t, 124, watch.code(), "the watch of a removed user continues")
	_, code = call(t, env(alice), leased, "list")
	require.Equal(t, 124, code)
	must(t, env(bob), leased, "list")
	for _, hidden := range []string{alice, bob, "hunter2"} {
		require.NotContains(t, p.output.String(), hidden)
	}
}

// A secret is replaced while a caller holds a lease and another watches: both secrets
// work until the old one is removed, only its calls end, and the lease stays with its
// user.
func TestUserSecretRotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	before := addUser(t, file, "alice", "--admin")
	p, api := single(t, "--users="+file)
	env := func(secret string) []string {
		return append(endpoint(api), "LEASED_SECRET="+secret, "LEASED_USERS="+file)
	}
	ids := func() []string {
		var list struct{ Users []struct{ Secrets []string } }
		require.NoError(t, json.Unmarshal([]byte(must(t, env(""), leased, "user", "list", "--output=json")), &list))
		return list.Users[0].Secrets
	}
	token := tokenOf(t, env(before), "nightly", "--ttl=10m")
	old := start(t, env(before), leased, "watch", "x", "--output=json")
	old.says("synced")

	out, err := exec.Command(leased, "user", "secret", "add", "alice", "--users="+file).Output()
	require.NoError(t, err)
	after := strings.TrimSpace(string(out))
	p.reload("reloaded the certificate")
	fresh := start(t, env(after), leased, "watch", "x", "--output=json")
	fresh.says("synced")
	must(t, env(before), leased, "list")

	require.Len(t, ids(), 2)
	must(t, env(""), leased, "user", "secret", "remove", "alice", ids()[0])
	text, code := call(t, env(""), leased, "user", "secret", "remove", "alice", ids()[0])
	require.Equal(t, 2, code, text)
	require.Contains(t, text, "is the only secret of alice")
	p.reload("reloaded the certificate")
	require.Equal(t, 124, old.code(), "the watch continues with a removed secret")
	_, code = call(t, env(before), leased, "list")
	require.Equal(t, 124, code, "a removed secret is accepted")
	must(t, env(after), leased, "release", "nightly", "--token="+token)
	tokenOf(t, env(after), "x", "--holder=cid")
	fresh.says("cid")
}

// A user may do what its rules allow: check tells it from the file, and the service
// refuses the rest with its own exit code. SIGHUP applies changes of rules.
func TestRights(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	alice := addUser(t, file, "alice", "--allow=acquire:jobs/*", "--allow=read:jobs/*")
	ops := addUser(t, file, "ops", "--admin")
	p, api := single(t, "--users="+file)
	env := func(secret string) []string {
		return append(endpoint(api), "LEASED_SECRET="+secret, "LEASED_USERS="+file)
	}
	check := func(args ...string) (string, int) {
		return call(t, env(alice), append([]string{leased, "user", "check"}, args...)...)
	}
	out, code := check("alice", "acquire", "jobs/7")
	require.Equal(t, []any{"allowed by acquire:jobs/*\n", 0}, []any{out, code})
	for _, denied := range [][]string{{"alice", "acquire", "job"}, {"alice", "break", "jobs/7"}, {"alice", "cluster"},
		{"alice", "acquire", "job*"}} {
		out, code := check(denied...)
		require.Equal(t, 119, code, out)
		require.Contains(t, out, "leased user allow alice")
	}
	for _, wrong := range [][]string{{"eve", "acquire", "a"}, {"alice", "write", "a"}, {"alice", "acquire"},
		{"alice", "acquire", "a", "b"}} {
		out, code := check(wrong...)
		require.Equal(t, 2, code, out)
	}

	must(t, env(alice), leased, "run", "jobs/7", "--", "true")
	for _, args := range [][]string{{"run", "other", "--", "true"}, {"acquire", "other"}, {"inspect", "other"},
		{"list", "other"}, {"watch", "other"},
		{"break", "jobs/7", "--token=1"}, {"policy", "set", "jobs/", "--mode=correctness"}, {"cluster", "status"},
		{"redis", "status"}} {
		out, code := call(t, env(alice), append([]string{leased}, args...)...)
		require.Equal(t, 119, code, "%v: %s", args, out)
		require.Contains(t, out, "leased user allow alice", "%v", args)
	}
	must(t, env(ops), leased, "cluster", "status")
	must(t, env(ops), leased, "acquire", "jobs/8", "--ttl=10m")
	out = must(t, env(alice), leased, "inspect", "jobs/8")
	require.Contains(t, out, "ops")
	require.NotContains(t, must(t, env(alice), leased, "inspect", "jobs/8", "--output=json"), `"token"`)
	require.Contains(t, must(t, env(ops), leased, "inspect", "jobs/8", "--output=json"), `"token"`)

	must(t, env(alice), leased, "user", "allow", "alice", "acquire:other")
	must(t, env(alice), leased, "user", "deny", "alice", "acquire:jobs/*")
	p.reload("reloaded the certificate")
	must(t, env(alice), leased, "run", "other", "--", "true")
	_, code = call(t, env(alice), leased, "run", "jobs/7", "--", "true")
	require.Equal(t, 119, code)
}

// Members authenticate to each other. A follower authenticates a caller before it
// forwards the call, and so does the leader.
func TestUsersInCluster(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	dir := t.TempDir()
	file, own := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "member.secret")
	require.NoError(t, os.WriteFile(own, []byte(addUser(t, file, "members", "--member")), 0o600))
	alice := addUser(t, file, "alice", "--admin")

	out, code := call(t, nil, append(c.commands[0], "--users="+file)...)
	require.Equal(t, 2, code)
	require.Contains(t, out, "secret-file (empty, from default) is required with users")
	unknown := filepath.Join(dir, "unknown.secret")
	require.NoError(t, os.WriteFile(unknown, []byte(addUser(t, filepath.Join(dir, "others.yaml"), "x")), 0o600))
	out, code = call(t, nil, append(c.commands[0], "--users="+file, "--secret-file="+unknown)...)
	require.Equal(t, 2, code)
	require.Contains(t, out, "must contain the secret of a user in users")

	for i := range c.commands {
		c.commands[i] = append(c.commands[i], "--users="+file, "--secret-file="+own)
		c.start(i)
	}
	healthy(t, c.apis...)
	env := append(c.env(), "LEASED_SECRET="+alice)
	eventually(t, func() bool {
		out, _ := call(t, env, leased, "cluster", "status")
		return strings.Count(out, " yes ") == 3
	}, "for three voters")
	header := "Authorization: Bearer " + alice
	for i, api := range c.apis { // one is the leader, the others forward
		require.Equal(t, "401", httpCode(t, api, "/v1/inspect"))
		require.Equal(t, "401", httpCode(t, api, "/v1/inspect", "Leased-Forwarded: a"))
		var code string
		eventually(t, func() bool { code = httpCode(t, api, "/v1/inspect", header); return code != "503" && code != "504" },
			"for a leader")
		require.Equal(t, "200", code, fmt.Sprint(i))
	}
	must(t, env, leased, "run", "nightly", "--", "true")
}
