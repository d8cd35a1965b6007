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

// A supervisor that is stopped, or killed, can do nothing. Its guard can: the
// command's output ends because all who had it open are dead.
func TestTheGuardActsAlone(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "output") // the supervisor itself does not have it open
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			supervisor := exec.Command(os.Args[0], "supervisor", "exec >"+fifo+"; "+stubborn)
			require.NoError(t, supervisor.Start())
			defer func() {
				_ = supervisor.Process.Kill()
				_ = supervisor.Wait()
			}()
			out, err := os.Open(fifo)
			require.NoError(t, err)
			defer out.Close()
			require.NoError(t, out.SetReadDeadline(time.Now().Add(patience)))
			text := bufio.NewReader(out)
			ready, err := text.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", ready)
			require.NoError(t, supervisor.Process.Signal(signal))
			_, err = io.Copy(io.Discard, text)
			require.NoError(t, err)
		})
	}
}

// Without its guard a command could outlive its lease, so it does not run.
func TestNoCommandWithoutItsGuard(t *testing.T) {
	s := newScene(t, "sh", "-c", stubborn)
	s.command.Guard = []string{"true"}
	s.start()
	require.ErrorIs(t, s.wait().Lost, supervise.ErrGuard)

	s = newScene(t, "sh", "-c", "echo started")
	s.command.Guard = []string{"no-such-guard"}
	_, err := s.command.Run(s.lease)
	require.ErrorIs(t, err, supervise.ErrGuard)
}
