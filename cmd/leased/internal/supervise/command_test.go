//go:build unix

package supervise_test

import (
	"bufio"
	"context"
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
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/memory"
)

const (
	resource = "nightly"
	ttl      = 2 * time.Second
	patience = time.Minute // ends a test that hangs; no measure of speed
)

// stubborn ignores SIGTERM, and so do its child and its grandchild.
const stubborn = `trap "" TERM; (sleep 1000; :) & echo ready; sleep 1000; :`

// The thread that a process of holdArgs starts with must not be the one that
// becomes the command: in a program it can be any.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		runtime.LockOSThread()
	}
}

// This binary is also the guard, the process that becomes the command, and a
// supervisor in a process of its own.
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
		os.Exit(m.Run())
	}
}

func guardArgs() []string { return []string{os.Args[0], "guard"} }
func holdArgs() []string  { return []string{os.Args[0], "hold"} }

// blindGuard says that it knows, and does nothing.
func blindGuard() []string {
	return []string{"sh", "-c", "echo; while read -r line; do :; done"}
}

// supervisorMain runs a command under a lease of its own.
func supervisorMain(guard, args []string) {
	blockSignal()
	memory, _ := memory.New()
	client, _ := lease.New(memory)
	l, err := client.Acquire(context.Background(), resource, lease.WithTTL(ttl))
	if err != nil {
		panic(err)
	}
	c := supervise.Command{Args: args, Stdout: os.Stdout, TTL: ttl, Grace: supervise.DefaultGrace(ttl),
		Guard: guard, Hold: holdArgs(), Log: func(string, ...any) {}}
	_, _ = c.Run(l)
}

// plainMain runs a command as any Go program would.
func plainMain(args []string) {
	blockSignal()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_ = cmd.Run()
}

// line is the way to the service, which can be cut.
type line struct {
	engine.Backend
	cut *atomic.Bool
}

type lineSession struct {
	engine.Session
	cut *atomic.Bool
}

func (b line) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	lost := config.Lost
	config.Lost = func(nonce engine.Nonce, err error) {
		if !b.cut.Load() {
			lost(nonce, err)
		}
	}
	session, err := b.Backend.Open(ctx, config)
	return lineSession{session, b.cut}, err
}

// Renew hangs while the line is cut, as a packet that nobody answers.
func (s lineSession) Renew(ctx context.Context) ([]engine.Nonce, error) {
	if s.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Session.Renew(ctx)
}

// scene is a service, a lease and a command whose output the test reads.
type scene struct {
	t       *testing.T
	memory  *memory.Backend
	cut     atomic.Bool
	lease   *lease.Lease
	command supervise.Command
	signals chan os.Signal
	out     *os.File // at its end only when all of the command are dead
	in      *os.File // the other end
	text    *bufio.Reader
	ended   chan struct{}
	result  supervise.Result
	err     error
}

func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	memory, err := memory.New()
	require.NoError(t, err)
	s := &scene{t: t, memory: memory, signals: make(chan os.Signal, 8), ended: make(chan struct{})}
	s.lease, err = s.client(line{memory, &s.cut}).Acquire(s.ctx(), resource, lease.WithTTL(ttl))
	require.NoError(t, err)
	s.out, s.in, err = os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.out.Close() })
	s.text = bufio.NewReader(s.out)
	s.command = supervise.Command{Args: args, Stdout: s.in, TTL: ttl, Grace: supervise.DefaultGrace(ttl),
		Guard: guardArgs(), Hold: holdArgs(), Signals: s.signals, Log: t.Logf}
	return s
}

func (s *scene) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *scene) client(b engine.Backend) *lease.Client {
	c, err := lease.New(b)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// start runs the command beside the test.
func (s *scene) start() {
	go func() {
		defer close(s.ended)
		defer s.in.Close()
		s.result, s.err = s.command.Run(s.lease)
	}()
}

func (s *scene) read() string {
	s.t.Helper()
	require.NoError(s.t, s.out.SetReadDeadline(time.Now().Add(patience)))
	text, err := s.text.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSpace(text)
}

// dead reports whether nobody has the command's output open any more.
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

func (s *scene) wait() supervise.Result {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		require.Fail(s.t, "the command has not ended")
	}
	require.NoError(s.t, s.err)
	require.True(s.t, dead(s.t, s.out), "a process of the command is alive")
	return s.result
}

func TestExitCodeIsPassedOn(t *testing.T) {
	for script, code := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -USR1 $$": 128 + int(syscall.SIGUSR1)} {
		s := newScene(t, "sh", "-c", script)
		s.start()
		require.Equal(t, supervise.Result{Code: code}, s.wait(), script)
	}
}

func TestTheCommandHasTheToken(t *testing.T) {
	s := newScene(t, "sh", "-c", "echo $LEASED_RESOURCE $LEASED_TOKEN")
	s.start()
	require.Equal(t, "nightly "+s.lease.Token().String(), s.read())
	s.wait()
}

// The network is cut while a command runs that ignores SIGTERM, and so do its
// children. When the service gives the lock to the next, all must be dead.
func TestNobodyOutlivesTheLease(t *testing.T) {
	s := newScene(t, "sh", "-c", stubborn)
	s.start()
	require.Equal(t, "ready", s.read())
	next := s.client(s.memory)
	s.cut.Store(true)
	_, err := next.Acquire(s.ctx(), resource)
	require.NoError(t, err)
	require.True(t, dead(t, s.out), "a process of the command is alive, and the lock has passed on")
	result := s.wait()
	require.ErrorIs(t, result.Lost, supervise.ErrEnding)
	require.Equal(t, 128+int(syscall.SIGKILL), result.Code)
}

// A command that listens is asked first, and has time to clean up.
func TestTheCommandIsAskedFirst(t *testing.T) {
	s := newScene(t, "sh", "-c", `trap "echo bye; exit 4" TERM; echo ready; while :; do sleep 0.05; done`)
	s.start()
	require.Equal(t, "ready", s.read())
	s.cut.Store(true)
	require.Equal(t, "bye", s.read())
	result := s.wait()
	require.ErrorIs(t, result.Lost, supervise.ErrEnding)
	require.Equal(t, 4, result.Code)
}

func TestABrokenLeaseStopsTheCommand(t *testing.T) {
	s := newScene(t, "sh", "-c", stubborn)
	s.start()
	require.Equal(t, "ready", s.read())
	require.NoError(t, s.memory.Break(s.ctx(), resource, s.lease.Token()))
	require.ErrorIs(t, s.wait().Lost, lease.ErrTaken)
}

// What the command leaves behind must not work on after the lease is given back.
func TestLeftoversAreKilled(t *testing.T) {
	s := newScene(t, "sh", "-c", `(trap "" TERM HUP; sleep 1000; :) & exit 3`)
	s.start()
	require.Equal(t, supervise.Result{Code: 3}, s.wait())
}

func TestSignalsArePassedOn(t *testing.T) {
	s := newScene(t, "sh", "-c", `trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done`)
	s.start()
	require.Equal(t, "ready", s.read())
	s.signals <- syscall.SIGUSR1
	require.Equal(t, supervise.Result{Code: 9}, s.wait())
}

// A stopped command is woken up to clean up, and killed if it does not.
func TestAStoppedCommandIsKilled(t *testing.T) {
	s := newScene(t, "sh", "-c", stubborn)
	s.start()
	require.Equal(t, "ready", s.read())
	s.signals <- syscall.SIGSTOP
	s.cut.Store(true)
	require.ErrorIs(t, s.wait().Lost, supervise.ErrEnding)
}

func TestNoStartWithoutALease(t *testing.T) {
	s := newScene(t, "sh", "-c", "echo started")
	require.NoError(t, s.lease.Release(s.ctx()))
	_, err := s.command.Run(s.lease)
	require.ErrorIs(t, err, lease.ErrReleased)
}

func TestTimingsAreChecked(t *testing.T) {
	require.ErrorContains(t, supervise.Check(time.Millisecond, 0), "ttl (1ms) must be at least 1s")
	require.ErrorContains(t, supervise.Check(3*time.Second, 2*time.Second), "grace (2s) must be from 0 to a third of ttl (3s)")
	require.NoError(t, supervise.Check(ttl, supervise.DefaultGrace(ttl)))
}
