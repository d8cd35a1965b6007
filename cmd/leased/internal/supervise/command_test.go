//go:build unix

package supervise_test

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leased-project/leased/cmd/leased/internal/supervise"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
)

const (
	resource = "nightly"
	// longTTL is for tests that do not wait until the lease expires.
	longTTL     = time.Minute
	shortTTL    = 4 * time.Second
	testTimeout = 2 * time.Minute // ends a test that hangs
)

// stubborn ignores SIGTERM, and so do its child and its grandchild.
const stubborn = `trap "" TERM; (sleep 1000; :) & echo ready; sleep 1000; :`

// The thread that calls exec must not be the first thread of the process: in a
// program it can be any thread.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		runtime.LockOSThread()
	}
}

// The test binary is also the guard, the placeholder, and a supervisor in its own
// process.
func TestMain(m *testing.M) {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case "guard":
		supervise.Guard(os.Stdin, os.Stdout)
	case "hold":
		code := make(chan int)
		go func() { code <- supervise.Hold(os.Args[2:]) }()
		os.Exit(<-code)
	case "supervisor":
		supervisorMain(guardArgs(), os.Args[2:])
	case "supervisor with a blind guard":
		supervisorMain(blindGuard(), os.Args[2:])
	case "plain":
		plainMain(os.Args[2:])
	default:
		flag.Parse()
		_ = flag.Set("test.parallel", "8") // parallel tests only wait
		os.Exit(m.Run())
	}
}

func guardArgs() []string { return []string{os.Args[0], "guard"} }
func holdArgs() []string  { return []string{os.Args[0], "hold"} }

// blindGuard confirms that it is ready, and does nothing.
func blindGuard() []string {
	return []string{"sh", "-c", "echo; while read -r line; do :; done"}
}

// supervisorMain runs a command under a lease of its own.
func supervisorMain(guard, args []string) {
	blockSignal()
	memory, _ := memory.New()
	client, _ := lease.New(memory)
	l, err := client.Acquire(context.Background(), resource, lease.WithTTL(shortTTL))
	if err != nil {
		panic(err)
	}
	c := supervise.Command{Args: args, Stdout: os.Stdout, TTL: shortTTL, Grace: supervise.DefaultGrace(shortTTL),
		Guard: guard, Hold: holdArgs(), Log: func(string, ...any) {}}
	_, _ = c.Run(l)
}

// plainMain runs a command without supervision.
func plainMain(args []string) {
	blockSignal()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_ = cmd.Run()
}

// network is a backend whose connection to the service can be cut.
type network struct {
	engine.Backend
	cut *atomic.Bool
}

type networkSession struct {
	engine.Session
	cut *atomic.Bool
}

func (b network) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	lost := config.Lost
	config.Lost = func(nonce engine.Nonce, err error) {
		if !b.cut.Load() {
			lost(nonce, err)
		}
	}
	session, err := b.Backend.Open(ctx, config)
	return networkSession{session, b.cut}, err
}

// Renew gets no answer while the connection is cut.
func (s networkSession) Renew(ctx context.Context, held ...engine.Held) ([]engine.Nonce, error) {
	if s.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Session.Renew(ctx, held...)
}

// fixture is a service, a lease and a command whose output the test reads.
type fixture struct {
	t       *testing.T
	memory  *memory.Backend
	cut     atomic.Bool
	lease   *lease.Lease
	command supervise.Command
	signals chan os.Signal
	out     *os.File // ends when all processes of the command are dead
	in      *os.File // the other end
	text    *bufio.Reader
	ended   chan struct{}
	result  supervise.Result
	err     error
}

func newFixture(t *testing.T, args ...string) *fixture {
	t.Helper()
	return newFixtureWithTTL(t, longTTL, args...)
}

func newFixtureWithTTL(t *testing.T, ttl time.Duration, args ...string) *fixture {
	t.Helper()
	memory, err := memory.New()
	require.NoError(t, err)
	s := &fixture{t: t, memory: memory, signals: make(chan os.Signal, 8), ended: make(chan struct{})}
	s.lease, err = s.client(network{memory, &s.cut}).Acquire(s.ctx(), resource, lease.WithTTL(ttl))
	require.NoError(t, err)
	s.out, s.in, err = os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.out.Close() })
	s.text = bufio.NewReader(s.out)
	s.command = supervise.Command{Args: args, Stdout: s.in, TTL: ttl, Grace: supervise.DefaultGrace(ttl),
		Guard: guardArgs(), Hold: holdArgs(), Signals: s.signals, Log: t.Logf}
	return s
}

func (s *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *fixture) client(b engine.Backend) *lease.Client {
	c, err := lease.New(b)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// start runs the command in the background.
func (s *fixture) start() {
	go func() {
		defer close(s.ended)
		defer s.in.Close()
		s.result, s.err = s.command.Run(s.lease)
	}()
}

func (s *fixture) read() string {
	s.t.Helper()
	require.NoError(s.t, s.out.SetReadDeadline(time.Now().Add(testTimeout)))
	text, err := s.text.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSpace(text)
}

// dead reports whether all processes of the command have closed its output.
func dead(t *testing.T, out *os.File) bool {
	t.Helper()
	raw, err := out.SyscallConn()
	require.NoError(t, err)
	var events int16
	require.NoError(t, raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err = unix.Poll(fds, 0)
		events = fds[0].Revents
	}))
	require.NoError(t, err)
	return events&unix.POLLHUP != 0
}

func (s *fixture) wait() supervise.Result {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(testTimeout):
		require.Fail(s.t, "the command has not ended")
	}
	require.NoError(s.t, s.err)
	require.True(s.t, dead(s.t, s.out), "a process of the command is alive")
	return s.result
}

func TestExitCodeIsPassedOn(t *testing.T) {
	for script, code := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -USR1 $$": 128 +
		int(syscall.SIGUSR1)} {
		s := newFixture(t, "sh", "-c", script)
		s.start()
		require.Equal(t, supervise.Result{Code: code}, s.wait(), script)
	}
}

func TestCommandGetsToken(t *testing.T) {
	s := newFixture(t, "sh", "-c", "echo $LEASED_RESOURCE $LEASED_TOKEN")
	s.start()
	require.Equal(t, "nightly "+s.lease.Token().String(), s.read())
	s.wait()
}

// A command does not get the signed token of another lease, under which `leased run` itself was started.
func TestCommandGetsNoOtherToken(t *testing.T) {
	t.Setenv(fencing.EnvSignedToken, "of another lease")
	s := newFixture(t, "sh", "-c", "echo ${LEASED_SIGNED_TOKEN-none}")
	s.start()
	require.Equal(t, "none", s.read())
	s.wait()
}

// The connection is cut while a command runs that ignores SIGTERM, as do its
// children. When the service grants the lock to the next holder, all must be dead.
func TestCommandDiesBeforeLeaseExpires(t *testing.T) {
	s := newFixtureWithTTL(t, 3*shortTTL, "sh", "-c", stubborn) // on a busy machine a kill takes a while
	s.start()
	require.Equal(t, "ready", s.read())
	next := s.client(s.memory)
	s.cut.Store(true)
	_, err := next.Acquire(s.ctx(), resource)
	require.NoError(t, err)
	require.True(t, dead(t, s.out), "a process of the command is alive after the lock was granted to another holder")
	result := s.wait()
	require.ErrorIs(t, result.Lost, supervise.ErrNotRenewed)
	require.Equal(t, 128+int(syscall.SIGKILL), result.Code)
}

// A command has time to clean up after SIGTERM.
func TestCommandGetsSIGTERMFirst(t *testing.T) {
	s := newFixtureWithTTL(t, 5*shortTTL, "sh", "-c", // on a busy machine the shell wakes up late
		`trap "echo bye; exit 4" TERM; echo ready; while :; do sleep 0.05; done`)
	s.start()
	require.Equal(t, "ready", s.read())
	s.cut.Store(true)
	require.Equal(t, "bye", s.read())
	result := s.wait()
	require.ErrorIs(t, result.Lost, supervise.ErrNotRenewed)
	require.Equal(t, 4, result.Code)
}

// A command gets SIGTERM also if the messages of its supervisor go nowhere, as into a pipe that nobody reads.
func TestCommandGetsSIGTERMBeforeMessages(t *testing.T) {
	s := newFixtureWithTTL(t, 5*shortTTL, "sh", "-c",
		`trap "echo bye; exit 4" TERM; echo ready; while :; do sleep 0.05; done`)
	read := make(chan struct{})
	s.command.Log = func(string, ...any) { <-read }
	s.start()
	require.Equal(t, "ready", s.read())
	s.cut.Store(true)
	require.NoError(t, s.out.SetReadDeadline(time.Now().Add(5*shortTTL)))
	text, err := s.text.ReadString('\n')
	close(read)
	require.NoError(t, err)
	require.Equal(t, "bye\n", text)
	require.Equal(t, 4, s.wait().Code)
}

func TestBrokenLeaseStopsCommand(t *testing.T) {
	s := newFixture(t, "sh", "-c", stubborn)
	s.command.Grace = time.Second
	s.start()
	require.Equal(t, "ready", s.read())
	require.NoError(t, s.memory.Break(s.ctx(), resource, s.lease.Token()))
	require.ErrorIs(t, s.wait().Lost, lease.ErrTaken)
}

// Processes that the command leaves behind must not outlive the lease.
func TestLeftoversAreKilled(t *testing.T) {
	s := newFixture(t, "sh", "-c", `(trap "" TERM HUP; sleep 1000; :) & exit 3`)
	s.start()
	require.Equal(t, supervise.Result{Code: 3}, s.wait())
}

func TestSignalsArePassedOn(t *testing.T) {
	s := newFixture(t, "sh", "-c", `trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done`)
	s.start()
	require.Equal(t, "ready", s.read())
	s.signals <- syscall.SIGUSR1
	require.Equal(t, supervise.Result{Code: 9}, s.wait())
}

// A stopped command gets SIGCONT to clean up, and is killed if it does not exit.
func TestStoppedCommandIsKilled(t *testing.T) {
	s := newFixtureWithTTL(t, shortTTL, "sh", "-c", stubborn)
	s.start()
	require.Equal(t, "ready", s.read())
	s.signals <- syscall.SIGSTOP
	s.cut.Store(true)
	require.ErrorIs(t, s.wait().Lost, supervise.ErrNotRenewed)
}

func TestNoCommandWithoutLease(t *testing.T) {
	s := newFixture(t, "sh", "-c", "echo started")
	require.NoError(t, s.lease.Release(s.ctx()))
	_, err := s.command.Run(s.lease)
	require.ErrorIs(t, err, lease.ErrReleased)
}

func TestCheck(t *testing.T) {
	require.ErrorContains(t, supervise.Check(time.Millisecond, 0), "ttl (1ms) must be at least 1s")
	require.ErrorContains(t, supervise.Check(3*time.Second, 2*time.Second), "grace (2s) must be from 0 to a third of "+
		"ttl (3s)")
	require.NoError(t, supervise.Check(longTTL, supervise.DefaultGrace(longTTL)))
}
