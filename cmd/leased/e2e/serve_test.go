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
)

// Strangers could reach the port: it is refused, with the key, value and rule.
func TestServeRefusesToBeOpen(t *testing.T) {
	out, code := call(t, nil, leased, "serve", "--data="+t.TempDir(), "--bootstrap-expect=1", "--listen=0.0.0.0:0")
	require.Equal(t, 2, code)
	require.Contains(t, out, "listen (0.0.0.0:0, from --listen) must be a loopback address while there is no tls-cert")
	out, code = call(t, []string{"LEASED_RAFT_LISTEN=0.0.0.0:0"}, leased, "serve", "--data="+t.TempDir(), "--bootstrap-expect=1")
	require.Equal(t, 2, code)
	require.Contains(t, out, "raft-listen (0.0.0.0:0, from LEASED_RAFT_LISTEN) must be a loopback address")
}

func TestPrintConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data: /srv/leased\nbootstrap-expect: 1\n"), 0o600))
	out := must(t, []string{"LEASED_ID=of-env"}, leased, "serve", "--config="+file, "--print-config", "--log-format=json")
	require.Contains(t, out, `id: "of-env" # LEASED_ID`)
	require.Contains(t, out, `data: "/srv/leased" # `+file+`:1`)
	require.Contains(t, out, `log-format: "json" # --log-format`)
	require.Contains(t, out, `listen: "127.0.0.1:7420" # default`)
}

// SIGHUP takes the new certificate and the new policies. With a bad file all
// stays as it is.
func TestReload(t *testing.T) {
	a := newAuthority(t)
	first := a.issue("server", "127.0.0.1")
	file := filepath.Join(a.dir, "leased.yaml")
	write := func(ttl string) {
		require.NoError(t, os.WriteFile(file, []byte("policies:\n  - {prefix: job/, mode: correctness, ttl: "+ttl+"}\n"), 0o600))
	}
	write("20s")
	api := freeAddr(t)
	p := start(t, nil, append([]string{leased, "serve", "--config=" + file, "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}, a.flags("server")...)...)
	p.says("leads")
	policies := func() string {
		out, _ := call(t, endpoint(api), leased, "policy", "list", a.ca())
		return out
	}
	eventually(t, func() bool { return strings.Contains(policies(), "20s") }, "for the policy of the file")
	require.Equal(t, first, serial(t, api))

	second := a.issue("server", "127.0.0.1")
	write("40s")
	p.signal(syscall.SIGHUP)
	p.says("reloaded")
	eventually(t, func() bool { return strings.Contains(policies(), "40s") }, "for the new policy")
	require.Equal(t, second, serial(t, api))

	write("never")
	p.signal(syscall.SIGHUP)
	p.says("nothing was reloaded")
	require.Contains(t, policies(), "40s")
	_, code := call(t, endpoint(api), leased, "list")
	require.Equal(t, 122, code, "without the authority there is no connection")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
}

// serial is that of the certificate which an API shows.
func serial(t *testing.T, api string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", api, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // only its number is looked at
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// systemd is told when the service is ready, and when it stops.
func TestServeNotifiesSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer socket.Close()
	p := start(t, []string{"NOTIFY_SOCKET=" + path}, leased, "serve", "--id=one", "--data="+t.TempDir()+"/one", "--listen=127.0.0.1:0",
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

// A folder belongs to one member for ever.
func TestAFolderHasOneMember(t *testing.T) {
	dir := t.TempDir() + "/one"
	args := []string{leased, "serve", "--data=" + dir, "--listen=127.0.0.1:0", "--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}
	p := start(t, nil, append(args, "--id=one")...)
	p.says("leads")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	out, code := call(t, nil, append(args, "--id=two")...)
	require.NotZero(t, code)
	require.Contains(t, out, `is that of member "one", and id is "two"`)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for want, args := range map[string][]string{
		"Start one with `leased dev`":             {"list", "--endpoint=127.0.0.1:1"},
		"see `leased inspect --help`":             {"inspect"},
		"then -- and a command":                   {"run", "nightly"},
		"ttl (10ms) must be at least 1s":          {"run", "nightly", "--ttl=10ms", "--", "true"},
		"output (xml) must be table or json":      {"list", "--output=xml"},
		"floor must be given: 0 for masters":      {"redis", "init"},
		"unknown flag: --wat":                     {"list", "--wat"},
		"unknown command \"lock\" for \"leased\"": {"lock"},
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
}
