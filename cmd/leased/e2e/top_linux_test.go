package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leased-project/leased/internal/testserver"
)

// onScreen starts a program that draws on a terminal of a size.
func onScreen(t *testing.T, env []string, width, height int, args ...string) *screen {
	t.Helper()
	s := &screen{t: t}
	s.terminal, _ = openTerminal(t)
	s.before = s.settings() // of a new terminal, because the program changes those of its own at once
	s.process, s.terminal = onTerminal(t, append(env, "TERM=xterm"), args...)
	s.resize(width, height)
	return s
}

// screen is the terminal of a program that draws.
type screen struct {
	t        *testing.T
	process  *process
	terminal *os.File
	before   unix.Termios
}

var escapes = regexp.MustCompile(`\x1b\[[?0-9;]*[a-zA-Z]`)

// text returns the last complete frame without colors.
func (s *screen) text() string {
	frames := strings.Split(s.process.output.String(), "\x1b[H")
	for i := len(frames) - 1; i > 0; i-- {
		if frame, _, complete := strings.Cut(frames[i], "\x1b[J"); complete {
			return escapes.ReplaceAllString(strings.ReplaceAll(frame, "\r", ""), "")
		}
	}
	return ""
}

// shows waits until the screen matches regular expressions.
func (s *screen) shows(wanted ...string) {
	s.t.Helper()
	for _, w := range wanted {
		re := regexp.MustCompile(w)
		eventually(s.t, func() bool { return re.MatchString(s.text()) }, "for %q on the screen:\n%s", w, lazy(s.text))
	}
}

func (s *screen) types(keys string) {
	s.t.Helper()
	_, err := s.terminal.WriteString(keys)
	require.NoError(s.t, err)
}

func (s *screen) resize(width, height int) {
	s.t.Helper()
	require.NoError(s.t, unix.IoctlSetWinsize(int(s.terminal.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: uint16(width), Row: uint16(height)}))
}

// settings returns the settings of the terminal.
func (s *screen) settings() unix.Termios {
	s.t.Helper()
	got, err := unix.IoctlGetTermios(int(s.terminal.Fd()), unix.TCGETS)
	require.NoError(s.t, err)
	return *got
}

// restored checks that the program has left the terminal as it was.
func (s *screen) restored() {
	s.t.Helper()
	const left = "\x1b[?25h\x1b[?1049l"
	eventually(s.t, func() bool { return strings.Contains(s.process.output.String(), left) }, "for the normal screen")
	_, after, _ := strings.Cut(s.process.output.String(), left)
	require.NotContains(s.t, after, "\x1b", "it draws after it has left")
	require.Equal(s.t, s.before, s.settings())
}

// longName does not fit on a screen, and has wide characters.
var longName = strings.Repeat("日本/", 30) + "daily"

// pile matches a holder with more accents than a terminal should draw.
const pile = `e\x{301}{3}(\\u0301){6}`

// blockDeploy holds a lock and waits for it.
func blockDeploy(t *testing.T, env []string) {
	t.Helper()
	must(t, env, leased, "acquire", "deploy/production", "--holder=deploy-bot", "--ttl=10m")
	must(t, env, leased, "acquire", "report/"+longName, "--holder=e"+strings.Repeat("\u0301", 9), "--ttl=10m")
	start(t, env, leased, "run", "deploy/production", "--holder=ann", "--", "true")
	queued(t, env, "deploy/production", 1)
}

// top shows the locks of a cluster, obeys its keys, survives the loss of the leader and
// of a majority, and restores the terminal.
func TestTop(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	blockDeploy(t, c.env())
	s := onScreen(t, endpoint(c.apis[0]), 80, 24, leased, "top")
	s.shows(`leads in term \d+, 3 of 3 members answer`, `2 locks, 2 holders, 1 waiter;`, `\[1 queue\]`,
		`(?m)^deploy/production +corr +deploy-bot +(\d+ +)?(\d+m)?\d+s +\S+ +1 +ann$`, `report/.*….*/daily +corr +e\x{301}`)
	require.Len(t, strings.Split(s.text(), "\n"), 24)
	s.types("2")
	s.shows(`\[2 held\]`)
	s.types("s")
	s.shows(`\[3 rate\]`)
	s.types("/report/\r")
	s.shows(`report/\*: 1-1 of 1`)
	s.types("/" + strings.Repeat("\x7f", len("report/")) + "\r")
	s.shows(`1-2 of 2`)
	s.types("p")
	s.shows(`PAUSED`)
	s.types("ph")
	s.shows(`any key closes this help`)
	s.types("h")
	s.shows(`q quit`)
	s.resize(120, 30)
	s.shows(`(?m)^leased top: .{99} \d\d:\d\d:\d\d$`)
	require.Len(t, strings.Split(s.text(), "\n"), 30)

	first := c.killLeader()
	s.shows(`leads in term \d+, 2 of 3 members answer; down: `+first, `deploy-bot`)
	c.killLeader()
	s.shows(`no leader; below is the state of one member, which may be old`, `deploy-bot`)
	require.Contains(t, must(t, c.env(), leased, "top", "--once"), "no leader; below is the state of one member")
	s.process.signal(syscall.SIGTERM)
	require.Equal(t, 128+int(syscall.SIGTERM), s.process.code())
	s.restored()
}

// killLeader kills the leader and returns its id.
func (c *trio) killLeader() string {
	c.t.Helper()
	i := c.leader()
	c.servers[i].signal(syscall.SIGKILL)
	<-c.servers[i].exited
	return string(rune('a' + i))
}

// list answers who blocks a lock, and since when. With --watch it is live, on a terminal
// and in a pipe; names cannot change the screen.
func TestListWatch(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	blockDeploy(t, env)
	out := must(t, env, leased, "list", "deploy/")
	require.Regexp(t, `(?m)^deploy/production +correctness +deploy-bot +- +\d+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d `+
		`+(\d+m)?\d+s +\S+ +1 +ann for (\d+m)?\d+s$`, out)
	require.NotContains(t, out, "report/")
	require.Regexp(t, `(?s)^RESOURCE[^\n]*\ndeploy/production [^\n]*\n$`, must(t, env, leased, "list", "--sort=queue",
		"--limit=1"))
	require.Regexp(t, "report/"+longName+" .* "+pile+" ", must(t, env, leased, "list"), "the plain list cuts nothing")
	require.Contains(t, exits(t, 2, env, leased, "list", "--sort=rate"), "--sort rate needs --watch")
	require.Regexp(t, `waiter 1 +ann .* \d{4}-\d\d-\d\d`, must(t, env, leased, "inspect", "deploy/production"))
	require.Regexp(t, `longest queues:\nLOCK .*\ndeploy/production .* deploy-bot `, must(t, env, leased, "top", "--once"))

	s := onScreen(t, env, 90, 20, leased, "list", "--watch")
	s.shows(`(?m)^deploy/production +corr +deploy-bot `, `/daily +corr +e\x{301}`, `2 locks`)
	plain := start(t, env, leased, "list", "--watch", "new/")
	lines := start(t, env, leased, "list", "--watch", "--output=json")
	must(t, env, leased, "acquire", "new/lock", "--holder=bob", "--ttl=10m")
	s.shows(`(?m)^new/lock +corr +bob`, `3 locks`)
	plain.says("  new/lock  correctness  bob  held ")
	lines.says(`"resource":"new/lock"`)
	first, _, _ := strings.Cut(lines.output.String(), "\n")
	require.True(t, json.Valid([]byte(first)), first)
	require.NotContains(t, plain.output.String(), "\x1b")
	s.types("\x03") // Ctrl-C
	require.Equal(t, 128+int(syscall.SIGINT), s.process.code())
	s.restored()
	s = onScreen(t, append(env, "NO_COLOR=1"), 90, 20, leased, "top")
	s.shows(`new/lock`)
	require.NotContains(t, s.process.output.String(), "\x1b[1m", "no colors")
	s.types("q")
	require.Zero(t, s.process.code())
	s.restored()
}

// Ctrl-Z restores the terminal and stops the program, and it draws again when it continues. Ctrl-\ restores it, too.
func TestTopIsStopped(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	s := onScreen(t, endpoint(api), 80, 24, leased, "top")
	s.shows(`0 locks`)
	s.types("\x1a") // Ctrl-Z
	s.process.awaitStop()
	s.restored()
	s.process.signal(syscall.SIGCONT)
	eventually(t, func() bool { return strings.Count(s.process.output.String(), "\x1b[?1049h") == 2 },
		"for the screen again")
	s.types("\x03") // Ctrl-C
	require.Equal(t, 128+int(syscall.SIGINT), s.process.code())
	require.Equal(t, s.before, s.settings())

	s = onScreen(t, endpoint(api), 80, 24, leased, "top")
	s.shows(`0 locks`)
	s.types("\x1c") // Ctrl-\
	require.Equal(t, 128+int(syscall.SIGQUIT), s.process.code())
	s.restored()
}

// acquire --wait waits until a member can be reached and leads.
func TestAcquireWaitsForService(t *testing.T) {
	t.Parallel()
	api := testserver.FreeAddr(t)
	waiting := start(t, endpoint(api), leased, "acquire", "job/1", "--wait=3m")
	waiting.says("retrying; ")
	require.Regexp(t, `retrying; (3m0s|2m5\ds) left`, waiting.output.String())
	start(t, nil, leased, "serve", "--id=one", "--data="+filepath.Join(t.TempDir(), "one"), "--listen="+api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1")
	require.Zero(t, waiting.code(), lazy(waiting.output.String))
	waiting.says("job/1")
	require.Equal(t, 122, start(t, endpoint(testserver.FreeAddr(t)), leased, "acquire", "job/1", "--wait=100ms").code())
}

// A client without the certificate that the service requires learns what is missing.
func TestClientCertificateIsNamed(t *testing.T) {
	t.Parallel()
	own, foreign, other := newAuthority(t), newAuthority(t), newAuthority(t)
	own.issue("one", "127.0.0.1", "one")
	foreign.issue("eve", "127.0.0.1")
	foreign.alsoTrust(own)
	api := testserver.FreeAddr(t)
	p := start(t, nil, append([]string{leased, "serve", "--id=one", "--data=" + filepath.Join(t.TempDir(), "one"),
		"--listen=" + api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1", "--tls-clients"}, own.flags("one")...)...)
	p.says(leads)
	env := endpoint(api)
	must(t, env, append([]string{leased, "list"}, own.flags("one")...)...)
	for _, command := range [][]string{{"list"}, {"run", "job/1", "--", "true"}} {
		require.Contains(t, exits(t, 124, env, insert(command, other.ca())...),
			"does not verify the certificate of the member; give the CA of the members")
		out := exits(t, 124, env, insert(command, own.ca())...)
		require.Contains(t, out, "requires a client certificate that its tls-ca has signed, and none was given; give "+
			"--tls-cert and --tls-key")
		out = exits(t, 124, env, insert(command, foreign.flags("eve")...)...)
		require.Contains(t, out, "and rejects tls-cert ("+filepath.Join(foreign.dir, "eve.pem")+"): tls: ")
	}
}

// insert puts flags behind the name of a command.
func insert(command []string, flags ...string) []string {
	return append(append([]string{leased, command[0]}, flags...), command[1:]...)
}

// Errors name where a wrong value comes from, and a wrong configuration ends with code 2.
func TestSourcesAreNamed(t *testing.T) {
	t.Parallel()
	require.Contains(t, exits(t, 2, endpoint("nowhere"), leased, "list"), "endpoint (nowhere, from LEASED_ENDPOINT) "+
		"must be HOST:PORT")
	require.Contains(t, exits(t, 2, []string{"LEASED_CLIENT_TLS_CA=/missing"}, leased, "list"),
		"tls-ca (/missing, from LEASED_CLIENT_TLS_CA)")
	require.Contains(t, exits(t, 2, nil, leased, "list", "--tls-ca=/missing"), "read tls-ca (/missing): ")
	dir := t.TempDir()
	serve := []string{leased, "serve", "--id=one", "--data=" + filepath.Join(dir, "one"), "--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}
	require.Contains(t, exits(t, 2, []string{"LEASED_USERS=/missing"}, serve...), "users is from LEASED_USERS")
	file := filepath.Join(dir, "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte("log-level: info\nsigning-key-file: /missing\n"), 0o600))
	require.Contains(t, exits(t, 2, nil, append(serve, "--config="+file)...), "signing-key-file is from "+file+":2")
	out := exits(t, 0, []string{"LEASED_LISTN=x"}, append(serve, "--print-config")...)
	require.Contains(t, out, "warning: unknown environment variable LEASED_LISTN; did you mean LEASED_LISTEN?")
}
