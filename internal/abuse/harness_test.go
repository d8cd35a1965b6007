//go:build linux

package abuse

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/testserver"
)

const (
	testTimeout = 3 * time.Minute // ends a test that hangs
	mib         = 1 << 20
	// parallel is the number of tests that run at once: they mostly wait.
	parallel = "4"
	// spareFiles are the open files of a process beside the connections of an attack.
	spareFiles = 500
)

var (
	scale  = flag.Int("scale", 1000, "number of connections of an attack")
	leased = flag.String("binary", "", "path of the leased binary to attack (default: one built from this tree)")
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "leased-abuse-")
	if err != nil {
		panic(err)
	}
	code := 1
	if err = prepare(dir); err == nil {
		_ = flag.Set("test.parallel", parallel)
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// prepare raises the limit of open files, which the servers inherit, and builds the
// binary. It is never built with the race detector, so that its memory is that of
// production.
func prepare(dir string) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if need := uint64(*scale + spareFiles); limit.Max < need {
		return fmt.Errorf("%d open files are needed and %d are allowed; raise the limit with ulimit -Hn, or lower -scale",
			need, limit.Max)
	}
	testserver.Patient()
	if *leased != "" {
		return nil
	}
	*leased = filepath.Join(dir, "leased")
	build := exec.Command("go", "build", "-o", *leased, "../../cmd/leased")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	return build.Run()
}

// server is a process of leased, a cluster of one member.
type server struct {
	t         testing.TB
	cmd       *exec.Cmd
	api, raft string
	dir       string
	tls       bool
	secret    string // of a user with all rights; empty if there are no users
	exited    chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
}

// start starts a server without TLS.
func start(t testing.TB, flags ...string) *server {
	t.Helper()
	s := launch(t, flags...)
	eventually(t, "the server is healthy", func() bool {
		response, err := http.Get("http://" + s.api + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return s
}

// launch starts a server and does not wait until it serves calls.
func launch(t testing.TB, flags ...string) *server {
	t.Helper()
	s := &server{t: t, api: testserver.FreeAddr(t), raft: testserver.FreeAddr(t), dir: t.TempDir(),
		exited: make(chan struct{})}
	s.cmd = exec.Command(*leased, append([]string{"serve", "--id=n1", "--data=" + filepath.Join(s.dir, "data"),
		"--listen=" + s.api,
		"--raft-listen=" + s.raft, "--bootstrap-expect=1", "--log-level=warn"}, flags...)...)
	s.cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	s.cmd.Stdout, s.cmd.Stderr = s, s
	require.NoError(t, s.cmd.Start())
	go func() { _ = s.cmd.Wait(); close(s.exited) }()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if t.Failed() {
			t.Logf("the server printed:\n%.4000s", s.text())
		}
	})
	return s
}

// startWithUsers starts a server whose users are these, with the flags of
// `leased user add`. The user admin has all rights.
func startWithUsers(t testing.TB, users map[string][]string, flags ...string) (*server, map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.yaml")
	secrets := map[string]string{}
	add := func(name string, flags ...string) {
		out, err := exec.Command(*leased, append([]string{"user", "add", name, "--users=" + file}, flags...)...).Output()
		require.NoError(t, err)
		secrets[name] = strings.TrimSpace(string(out))
	}
	add("admin", "--admin")
	for name, flags := range users {
		add(name, flags...)
	}
	s := start(t, append(flags, "--users="+file)...)
	s.secret = secrets["admin"]
	return s, secrets
}

// Write collects the output of the process.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

func (s *server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// running fails the test if the process has ended.
func (s *server) running() {
	s.t.Helper()
	select {
	case <-s.exited:
		require.FailNow(s.t, "the server has exited")
	default:
	}
}

// memory returns a size from /proc: VmRSS is what the process uses, VmHWM the most
// that it has used.
func (s *server) memory(field string) int {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(s.t, err)
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(s.t, m, "%s", text)
	kib, err := strconv.Atoi(string(m[1]))
	require.NoError(s.t, err)
	return kib << 10
}

// files returns the number of open files of the process.
func (s *server) files() int {
	s.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	require.NoError(s.t, err)
	return len(list)
}

// goroutines ends the process and returns the number of goroutines that it had.
func (s *server) goroutines() int {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGQUIT))
	<-s.exited
	return strings.Count(s.text(), "\ngoroutine ")
}

// answer is the response to a JSON call.
type answer struct {
	status int
	code   string // of an error
	text   string
	fields map[string]any
}

// post makes a JSON call as the user with a secret.
func (s *server) post(as, path, body string) answer {
	s.t.Helper()
	a, err := s.send(as, path, body)
	require.NoError(s.t, err, path)
	return a
}

// send is post for a call that may get no answer.
func (s *server) send(as, path, body string) (a answer, err error) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(testContext(s.t), http.MethodPost, "http://"+s.api+path,
		strings.NewReader(body))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	if as != "" {
		request.Header.Set("Authorization", secret.Header(as))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	a = answer{status: response.StatusCode, text: string(text)}
	_ = json.Unmarshal(text, &a.fields)
	a.code, _ = a.fields["code"].(string)
	return a, nil
}

// call makes a JSON call that must succeed, as the user with all rights.
func (s *server) call(path, body string) map[string]any {
	s.t.Helper()
	a := s.post(s.secret, path, body)
	require.Equal(s.t, http.StatusOK, a.status, a.text)
	return a.fields
}

// count returns a number of the server's Status, such as its sessions.
func (s *server) count(field string) int {
	s.t.Helper()
	n, _ := s.call("/v1/status", `{}`)[field].(float64)
	return int(n)
}

// connect opens a connection.
func (s *server) connect(address string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// dial connects with gRPC, as the user with a secret.
func (s *server) dial(as string, options ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.api, append(secret.DialOptions(nil, as), options...)...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// testContext and eventually fail the test before its time is up.
var testContext, eventually = testserver.Context, testserver.Eventually

// size formats a number of bytes.
func size(bytes int) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/mib) }
