//go:build unix

// Package e2e tests the leased binary from the outside.
package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"golang.org/x/sys/unix"
)

const (
	testTimeout  = 3 * time.Minute // ends a test that hangs
	pollInterval = 20 * time.Millisecond
	// parallel is the number of tests that run at once: they mostly wait.
	parallel = "6"
	// leads is in the log of a member that has become the leader.
	leads = "became leader"
	// The exit codes of commands: others hold the lock, the command had no effect, and it is unknown whether it had.
	held, unavailable, uncertain = 120, 122, 123
)

// leased is the path of the binary, which TestMain builds once.
var leased string

var buildFlags []string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "leased-e2e-")
	if err != nil {
		panic(err)
	}
	testserver.Patient()
	code := 1
	if leased, err = testserver.BuildLeased(dir, buildFlags...); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		flag.Parse()
		_ = flag.Set("test.parallel", parallel)
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// transcript is the output of a process.
type transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *transcript) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// process is a running program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output transcript
	exited chan struct{}
}

// start runs a program with additional environment variables. It ends with the test.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, env, args...)
}

// startWith is start for a process with these attributes.
func startWith(t *testing.T, attributes *syscall.SysProcAttr, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{})}
	p.cmd.SysProcAttr = attributes
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.WaitDelay = time.Second
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGKILL)
		<-p.exited
		if strings.Contains(p.output.String(), "DATA RACE") {
			t.Errorf("the race detector has found a data race")
		}
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), &p.output)
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// stop sends SIGSTOP and waits until every thread has stopped: on a busy machine, some keep running for a while.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.awaitStop()
}

func (p *process) awaitStop() {
	p.t.Helper()
	eventually(p.t, func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		return !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(stat, []byte(") T "))
		})
	}, "for the process to stop")
}

// says waits until the process has printed a text. It fails if the process exits
// without it.
func (p *process) says(text string) {
	p.t.Helper()
	p.prints(text)
	require.Contains(p.t, p.output.String(), text, "the process has exited")
}

// prints waits until the process has printed a text, and reports false if it exits
// without it.
func (p *process) prints(text string) bool {
	p.t.Helper()
	var exited time.Time // the last output may arrive a moment after the exit
	eventually(p.t, func() bool {
		select {
		case <-p.exited:
			if exited.IsZero() {
				exited = time.Now()
			}
		default:
		}
		return strings.Contains(p.output.String(), text) || !exited.IsZero() && time.Since(exited) > 5*time.Second
	}, "for the process to print %q; it printed:\n%s", text, &p.output)
	return strings.Contains(p.output.String(), text)
}

// code waits until the process exits and returns its exit code.
func (p *process) code() int {
	p.t.Helper()
	return p.codeWithin(testserver.Limit(p.t))
}

// codeWithin is code for a process that may run longer than others.
func (p *process) codeWithin(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		require.Fail(p.t, "the process has not exited", "%s", &p.output)
	}
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition func() bool, format string, args ...any) {
	t.Helper()
	limit := time.After(testserver.Limit(t))
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-limit:
			require.Fail(t, "waited too long "+fmt.Sprintf(format, args...))
		}
	}
}

// lazy is a text that is evaluated when it is printed.
type lazy func() string

// String returns the text.
func (l lazy) String() string { return l() }

// call runs a program and returns its output and exit code.
func call(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	p := start(t, env, args...)
	code := p.code()
	return p.output.String(), code
}

// must runs a program that has to succeed.
func must(t *testing.T, env []string, args ...string) string {
	t.Helper()
	return exits(t, 0, env, args...)
}

// exits runs a program that has to exit with a code, and returns its output. On a
// busy machine an election may interfere: it retries commands that had no effect or
// can be repeated.
func exits(t *testing.T, want int, env []string, args ...string) string {
	t.Helper()
	var out string
	var code int
	eventually(t, func() bool {
		out, code = call(t, env, args...)
		return code != unavailable && (code != uncertain || args[1] != "cluster" && args[1] != "policy")
	}, "for a leader; %s printed:\n%s", strings.Join(args, " "), lazy(func() string { return out }))
	require.Equal(t, want, code, "%s:\n%s", strings.Join(args, " "), out)
	return out
}

// startSaying starts a program and returns when it has printed a text. It starts a program again
// that exits with unavailable or uncertain before that.
func startSaying(t *testing.T, text string, env []string, args ...string) (p *process) {
	t.Helper()
	eventually(t, func() bool {
		p = start(t, env, args...)
		return p.prints(text) || p.code() != unavailable && p.code() != uncertain
	}, "for %s to print %q; it printed:\n%s", strings.Join(args, " "), text,
		lazy(func() string { return p.output.String() }))
	require.Contains(t, p.output.String(), text, "the process has exited")
	return p
}

// queued waits until a lock has this number of waiters. Without a terminal, a command that waits prints
// one line only, which may be older than its place in the queue.
func queued(t *testing.T, env []string, lock string, waiters int) {
	t.Helper()
	var out string
	eventually(t, func() bool {
		out = must(t, env, leased, "inspect", lock)
		return strings.Count(out, "\nwaiter ") == waiters
	}, "for %d waiters; the lock is:\n%s", waiters, lazy(func() string { return out }))
}

// endpoint returns the environment of a client.
func endpoint(addresses ...string) []string {
	return []string{"LEASED_ENDPOINT=" + strings.Join(addresses, ",")}
}

// single starts a single member and returns its API address.
func single(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	api := testserver.FreeAddr(t)
	p := start(t, nil, append([]string{leased, "serve", "--id=one", "--data=" + filepath.Join(t.TempDir(), "one"),
		"--listen=" + api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}, args...)...)
	healthy(t, api)
	return p, api
}

// healthy waits until the members report that they are healthy.
func healthy(t *testing.T, apis ...string) {
	t.Helper()
	for _, api := range apis {
		eventually(t, func() bool { return curl(t, "http://"+api+"/readyz", "") == nil }, "for the API at %s to be healthy",
			api)
	}
}

// curl sends a request with or without a body, and fails unless the response is
// successful.
func curl(t *testing.T, url, body string, output ...*string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	args := []string{"-sS", "--fail-with-body", url}
	if body != "" {
		args = append(args, "-H", "content-type: application/json", "-d", body)
	}
	out, err := exec.CommandContext(ctx, "curl", args...).Output()
	for _, o := range output {
		*o = string(out)
	}
	return err
}

// witness is a named pipe that a command and all its descendants have open.
type witness struct {
	t    *testing.T
	path string
	file *os.File
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{t: t, path: filepath.Join(t.TempDir(), "witness")}
	require.NoError(t, syscall.Mkfifo(w.path, 0o600))
	return w
}

// stubborn returns a script that ignores SIGTERM, as does its child, and keeps the
// pipe open.
func (w *witness) stubborn() string {
	return `trap "" TERM HUP INT; exec 9>` + w.path + `; (sleep 1000; :) & echo working >&9; sleep 1000; :`
}

// awaitStart waits until the command runs.
func (w *witness) awaitStart() {
	w.t.Helper()
	var err error
	w.file, err = os.Open(w.path) // returns when the other end is open too
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = w.file.Close() })
	require.NoError(w.t, w.file.SetReadDeadline(time.Now().Add(testTimeout)))
	_, err = w.file.Read(make([]byte, len("working\n")))
	require.NoError(w.t, err)
}

// dead reports whether all processes have closed the pipe.
func (w *witness) dead() bool {
	w.t.Helper()
	raw, err := w.file.SyscallConn()
	require.NoError(w.t, err)
	var events int16
	require.NoError(w.t, raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err = unix.Poll(fds, 0)
		events = fds[0].Revents
	}))
	require.NoError(w.t, err)
	return events&unix.POLLHUP != 0
}
