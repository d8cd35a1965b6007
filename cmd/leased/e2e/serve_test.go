//go:build unix

package e2e

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// Without TLS only loopback addresses are allowed.
func TestServeNeedsTLSOrLoopback(t *testing.T) {
	t.Parallel()
	out, code := call(t, nil, leased, "serve", "--data="+t.TempDir(), "--bootstrap-expect=1", "--listen=0.0.0.0:0")
	require.Equal(t, 2, code)
	require.Contains(t, out, "listen (0.0.0.0:0, from --listen) must be a loopback address without TLS")
	out, code = call(t, []string{"LEASED_RAFT_LISTEN=0.0.0.0:0"}, leased, "serve", "--data="+t.TempDir(),
		"--bootstrap-expect=1")
	require.Equal(t, 2, code)
	require.Contains(t, out, "raft-listen (0.0.0.0:0, from LEASED_RAFT_LISTEN) must be a loopback address")
}

func TestPrintConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data: /srv/leased\nbootstrap-expect: 1\n"), 0o600))
	out := must(t, []string{"LEASED_ID=of-env"}, leased, "serve", "--config="+file, "--print-config", "--log-format=json")
	require.Contains(t, out, `id: "of-env" # LEASED_ID`)
	require.Contains(t, out, `data: "/srv/leased" # `+file+`:1`)
	require.Contains(t, out, `log-format: "json" # --log-format`)
	require.Contains(t, out, `listen: "127.0.0.1:7420" # default`)
}

// Invalid settings are printed with their sources, then what is wrong with them.
func TestPrintInvalidConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data: /srv/leased\nlissten: x\nlimit-body-timeout: soon\npolicies: "+
		"[{prefix: a, mode: fast}]\n"), 0o600))
	out, code := call(t, []string{"LEASED_LOG_LEVEL=loud"}, leased, "serve", "--config="+file, "--print-config",
		"--log-store=disk", "--listen=127.0.0.1:1")
	require.Equal(t, 2, code)
	for _, want := range []string{`data: "/srv/leased" # ` + file + `:1`, `limit-body-timeout: "soon" # ` + file + `:3`,
		`log-level: "loud" # LEASED_LOG_LEVEL`,
		`log-store: "disk" # --log-store`, `listen: "127.0.0.1:1" # --listen`, `id: "" # default`,
		"lissten (x, from " + file + ":2) is not a setting", "policies: mode (fast, from " + file +
			":4) must be efficiency or correctness",
		"limit-body-timeout (soon, from " + file + ":3) must be a duration", "log-level (loud, from LEASED_LOG_LEVEL) " +
			"must be",
		"log-store (disk, from --log-store) must be wal or bolt"} {
		require.Contains(t, out, want)
	}
	require.Less(t, strings.Index(out, "policies: []"), strings.Index(out, "leased: "), "the errors come last")
	text := must(t, nil, leased, "user", "add", "alice", "--users="+filepath.Join(t.TempDir(), "users.yaml"))
	out, code = call(t, nil, leased, "serve", "--print-config", "--secret-file="+strings.TrimSpace(text))
	require.Equal(t, 2, code)
	require.NotContains(t, out, strings.TrimSpace(text)[10:])
}

// A misspelled variable is named, with the one that was meant.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	env := []string{"LEASED_ENPOINT=127.0.0.1:1", "LEASED_LOG_LEVLE=debug", "LEASED_SERVICE_HOST=10.0.0.1",
		"LEASED_PORT_7420_TCP_ADDR=10.0.0.1", "LEASED_USERS=u"}
	out, _ := call(t, env, leased, "version")
	require.Contains(t, out, "unknown environment variable LEASED_ENPOINT; did you mean LEASED_ENDPOINT?")
	require.Contains(t, out, "unknown environment variable LEASED_LOG_LEVLE; did you mean LEASED_LOG_LEVEL?")
	require.Equal(t, 2, strings.Count(out, "unknown environment variable"))
	require.NotContains(t, must(t, env, leased, "__complete", "version", ""), "unknown environment variable")

	p := start(t, []string{"LEASED_LISTNE=127.0.0.1:1", "LEASED_SOMETHING_ELSE=1"}, leased, "serve", "--data="+t.TempDir(),
		"--bootstrap-expect=1",
		"--listen=127.0.0.1:0", "--raft-listen=127.0.0.1:0", "--log-format=json")
	p.says(leads)
	require.Contains(t, p.output.String(), `"variable":"LEASED_LISTNE","hint":"did you mean LEASED_LISTEN?"`)
	require.Contains(t, p.output.String(), `"variable":"LEASED_SOMETHING_ELSE"`)
}

// SIGHUP reloads the certificate, and compares the policies of the file with those in
// effect. An invalid file changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	first := a.issue("server", "127.0.0.1", "one")
	file := filepath.Join(a.dir, "leased.yaml")
	write := func(ttl string) {
		require.NoError(t, os.WriteFile(file, []byte("policies:\n  - {prefix: job/, mode: correctness, ttl: "+ttl+"}\n"),
			0o600))
	}
	write("20s")
	api := testserver.FreeAddr(t)
	p := start(t, nil, append([]string{leased, "serve", "--config=" + file, "--id=one", "--data=" + t.TempDir() + "/one",
		"--listen=" + api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}, a.flags("server")...)...)
	p.says(leads)
	policies := func() string {
		out, _ := call(t, endpoint(api), leased, "policy", "show", a.ca())
		return out
	}
	eventually(t, func() bool { return strings.Contains(policies(), "20s") }, "for the policy of the file")
	require.Equal(t, first, serial(t, api))

	second := a.issue("server", "127.0.0.1", "one")
	write("40s")
	p.signal(syscall.SIGHUP)
	p.says("reloaded")
	p.says("policies of the configuration file differ")
	require.Regexp(t, `job/\* +correctness +20s .*differs: ttl 40s`, policies(), "the policy in effect stays")
	require.Equal(t, second, serial(t, api))

	write("never")
	p.signal(syscall.SIGHUP)
	p.says("reload failed")
	require.Contains(t, policies(), "differs: ttl 40s")
	_, code := call(t, endpoint(api), leased, "list")
	require.Equal(t, 122, code, "a client without the CA was connected")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
}

// SIGHUP reloads the CA: members and clients change to a new CA while the service
// runs.
func TestReloadCA(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	old, next := newAuthority(t), newAuthority(t)
	old.issue("member", "127.0.0.1", "a", "b", "c")
	old.issue("client", "127.0.0.1")
	next.issue("client", "127.0.0.1")
	for i := range c.commands {
		c.commands[i] = append(append(c.commands[i], "--tls-clients"), old.flags("member")...)
		c.start(i)
	}
	status := func(flags []string) (string, int) {
		return call(t, c.env(), append([]string{leased, "cluster", "status"}, flags...)...)
	}
	eventually(t, func() bool { out, _ := status(old.flags("client")); return strings.Count(out, " yes ") == 3 },
		"for three votes")
	// trusts the old CA, presents a certificate of the new one
	both := append(old.flags("client")[2:], next.flags("client")[:2]...)
	_, code := status(both)
	require.NotZero(t, code, "a certificate of an unknown CA was accepted")

	reload := func() {
		for _, p := range c.servers {
			before := strings.Count(p.output.String(), "reloaded")
			p.signal(syscall.SIGHUP)
			eventually(t, func() bool { return strings.Count(p.output.String(), "reloaded") > before }, "for a reload")
		}
	}
	old.alsoTrust(next)
	reload()
	out, code := status(both)
	require.Zero(t, code, out)

	next.issue("member", "127.0.0.1", "a", "b", "c")
	for _, end := range []string{"member.pem", "member.key"} {
		text, err := os.ReadFile(filepath.Join(next.dir, end))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(old.dir, end), text, 0o600))
	}
	reload()
	leader := -1
	eventually(t, func() bool {
		out, _ := status(next.flags("client"))
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "leader" {
				leader = int(fields[0][0] - 'a')
			}
		}
		return leader >= 0
	}, "for a leader with the new certificate")
	other := (leader + 1) % 3 // after a restart all of its connections are new
	c.servers[other].signal(syscall.SIGKILL)
	c.servers[other].code()
	c.start(other)
	eventually(t, func() bool {
		out, _ := status(next.flags("client"))
		return strings.Count(out, "follower") == 2
	}, "for the restarted member")

	text, err := os.ReadFile(filepath.Join(next.dir, "ca.pem"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(old.dir, "ca.pem"), text, 0o600))
	reload() // closes the connections of members with certificates of the old CA
	eventually(t, func() bool {
		_, code := call(t, c.env(),
			append([]string{leased, "run", "nightly"}, append(next.flags("client"), "--", "true")...)...)
		return code == 0
	}, "for a lock with the new CA only")
	eventually(t, func() bool { out, _ := status(next.flags("client")); return strings.Count(out, "follower") == 2 },
		"for all members")
}

// serial returns the serial number of the certificate of an API.
func serial(t *testing.T, api string) int64 {
	t.Helper()
	//nolint:gosec // the test reads only the serial number
	conn, err := tls.Dial("tcp", api, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// The service notifies systemd when it is ready and when it stops.
func TestServeNotifiesSystemd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer socket.Close()
	p := start(t, []string{"NOTIFY_SOCKET=" + path}, leased, "serve", "--id=one", "--data="+t.TempDir()+"/one",
		"--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1")
	buffer := make([]byte, 64)
	n, err := socket.Read(buffer)
	require.NoError(t, err)
	require.Equal(t, "READY=1", string(buffer[:n]))
	p.signal(syscall.SIGTERM)
	n, err = socket.Read(buffer)
	require.NoError(t, err)
	require.Equal(t, "STOPPING=1", string(buffer[:n]))
	require.Zero(t, p.code())
}

// A folder belongs to one member forever.
func TestDataFolderHasOneMember(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/one"
	args := []string{leased, "serve", "--data=" + dir, "--listen=127.0.0.1:0", "--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1"}
	p := start(t, nil, append(args, "--id=one")...)
	p.says(leads)
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	out, code := call(t, nil, append(args, "--id=two")...)
	require.NotZero(t, code)
	require.Contains(t, out, `belongs to member "one", but id is "two"`)
}

func TestErrorsAndHints(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"`leased dev` starts one":                {"list", "--endpoint=127.0.0.1:1"},
		"see `leased inspect --help`":            {"inspect"},
		"then -- and a command":                  {"run", "nightly"},
		"ttl (10ms) must be at least 1s":         {"run", "nightly", "--ttl=10ms", "--", "true"},
		"output (xml) must be table or json":     {"list", "--output=xml"},
		"--mode is required":                     {"policy", "set", "x*"},
		"--abort cannot be combined with":        {"policy", "set", "x*", "--abort", "--mode=efficiency"},
		"redis-user must be given together with": {"run", "x", "--redis-user=u", "--", "true"},
		"redis-tls-ca needs redis-tls (false)": {"redis", "init", "--redis=127.0.0.1:1",
			"--redis-tls-ca=c"},
		"--token is required": {"renew", "x"},
		"unknown flag: --wat": {"list", "--wat"},
		"unknown command \"locks\"; did you mean `leased lock`?": {"locks"},
		"unknown command \"nope\"":                               {"cluster", "nope"},
		"see `leased acquire --help`":                            {"acquire"},
		"accepts at most 1 arg(s)":                               {"list", "a", "b"},
		"--wait (1s) and --no-wait cannot be combined":           {"run", "x", "--wait=1s", "--no-wait", "--", "true"},
		"read redis-password-file": {"run", "x", "--redis-password-file=/nonexistent", "--",
			"true"},
		"the locks keep their mode":                     {"policy", "set", "x*", "--abort", "--now"},
		"--shared and --permits (2) cannot be combined": {"run", "x", "--shared", "--permits=2", "--", "true"},
		"endpoint (nonsense) must be HOST:PORT":         {"inspect", "x", "--endpoint=nonsense"},
	} {
		out, code := call(t, nil, append([]string{leased}, args...)...)
		require.Contains(t, out, want)
		if args[0] == "list" && len(args) == 2 && args[1] == "--endpoint=127.0.0.1:1" {
			require.Equal(t, 122, code)
		} else {
			require.Equal(t, 2, code, "%v: %s", args, out)
		}
	}
	require.Contains(t, must(t, nil, leased, "completion", "bash"), "leased")

	// An unreachable service is not reported as a held lock.
	out, code := call(t, endpoint("127.0.0.1:1"), leased, "run", "x", "--wait=1s", "--", "true")
	require.Equal(t, 122, code, out)
	require.NotContains(t, out, "is held")
}
