//go:build unix

package supervise_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/supervise"
)

// If the supervisor is stopped or killed, the guard kills the command: its output
// ends when all processes that had it open are dead.
func TestGuardActsAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		first  string
		signal syscall.Signal
	}{
		"stopped":                {"", syscall.SIGSTOP},
		"killed":                 {"", syscall.SIGKILL},
		"stopped by the command": {"kill -STOP $PPID; ", 0},
		"killed by the command":  {"kill -KILL $PPID; ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutput(t)
			supervisor := o.start("supervisor", tt.first+stubborn)
			o.open()
			if tt.signal != 0 {
				o.says("ready")
				require.NoError(t, supervisor.Process.Signal(tt.signal))
			}
			o.ends()
		})
	}
}

// output is the output of a command whose supervisor is another process, which does
// not have it open itself.
type output struct {
	t    *testing.T
	fifo string
	text *bufio.Reader
}

func newOutput(t *testing.T) *output {
	o := &output{t: t, fifo: filepath.Join(t.TempDir(), "output")}
	require.NoError(t, syscall.Mkfifo(o.fifo, 0o600))
	return o
}

// start starts a supervisor in a mode of TestMain.
func (o *output) start(mode, script string) *exec.Cmd {
	o.t.Helper()
	supervisor := exec.Command(os.Args[0], mode, "sh", "-c", "exec >"+o.fifo+"; "+script)
	require.NoError(o.t, supervisor.Start())
	o.t.Cleanup(func() {
		_ = supervisor.Process.Kill()
		_ = supervisor.Wait()
	})
	return supervisor
}

// open waits until the command has opened the output.
func (o *output) open() {
	o.t.Helper()
	out, err := os.Open(o.fifo)
	require.NoError(o.t, err)
	o.t.Cleanup(func() { _ = out.Close() })
	require.NoError(o.t, out.SetReadDeadline(time.Now().Add(testTimeout)))
	o.text = bufio.NewReader(out)
}

func (o *output) says(want string) {
	o.t.Helper()
	line, err := o.text.ReadString('\n')
	require.NoError(o.t, err)
	require.Equal(o.t, want+"\n", line)
}

// ends waits until all processes that had the output open are dead.
func (o *output) ends() {
	o.t.Helper()
	_, err := io.Copy(io.Discard, o.text)
	require.NoError(o.t, err)
}

// A command does not run without a guard, since it could outlive its lease.
func TestNoCommandWithoutGuard(t *testing.T) {
	for name, guard := range map[string][]string{"none": nil, "not found": {"no-such-guard"}, "ends at once": {"true"}} {
		started := filepath.Join(t.TempDir(), "started")
		s := newFixture(t, "touch", started)
		s.command.Guard = guard
		_, err := s.command.Run(s.lease)
		require.ErrorIs(t, err, supervise.ErrGuard, name)
		require.NoFileExists(t, started, name)
	}

	file := filepath.Join(t.TempDir(), "started")
	s := newFixture(t, "sh", "-c", "touch "+file+"; "+stubborn)
	s.command.Guard = []string{"sh", "-c", "echo; until [ -e " + file + " ]; do sleep 0.05; done"}
	s.start()
	require.ErrorIs(t, s.wait().Lost, supervise.ErrGuard)
}

// A command must not start before its guard has confirmed that it is ready. This
// guard never does, until the lease is about to expire.
func TestCommandWaitsForGuard(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	s := newFixtureWithTTL(t, shortTTL, "touch", started)
	s.command.Guard = []string{"sh", "-c", "while read -r line; do :; done"}
	s.cut.Store(true)
	_, err := s.command.Run(s.lease)
	require.ErrorContains(t, err, "start the command")
	require.NoFileExists(t, started)
}
