//go:build unix

package supervise_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/supervise"
)

func TestCommandsThatCannotRun(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	for name, tt := range map[string]struct {
		command string
		want    error
	}{
		"no such command":     {"no-such-command", supervise.ErrNotFound},
		"no such interpreter": {file("script", "#!/no/such/interpreter\n"), supervise.ErrNotFound},
		"not executable":      {"/etc/passwd", supervise.ErrNotExecutable},
		"no program":          {file("noise", "noise"), supervise.ErrNotExecutable},
	} {
		s := newFixture(t, tt.command)
		_, err := s.command.Run(s.lease)
		require.ErrorIs(t, err, tt.want, name)
		require.NoError(t, s.in.Close())
		require.True(t, dead(t, s.out), "%s: the placeholder is alive", name)
	}
}

// A placeholder that fails must not count as the command.
func TestNoCommandWithoutPlaceholder(t *testing.T) {
	for name, hold := range map[string][]string{"none": nil, "not found": {"no-such-program"}, "does nothing": {"true"}} {
		s := newFixture(t, "true")
		s.command.Hold = hold
		_, err := s.command.Run(s.lease)
		require.ErrorIs(t, err, supervise.ErrNotExecutable, name)
	}
}

// A placeholder that is not started exits and runs nothing.
func TestHoldExitsWithItsPipe(t *testing.T) {
	start, ours, err := os.Pipe()
	require.NoError(t, err)
	defer start.Close()
	report, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer report.Close()
	started := filepath.Join(t.TempDir(), "started")
	touch, err := exec.LookPath("touch")
	require.NoError(t, err)
	placeholder := exec.Command(os.Args[0], "hold", "3", "4", touch, "touch", started)
	placeholder.ExtraFiles = []*os.File{start, report}
	require.NoError(t, placeholder.Start())
	require.NoError(t, ours.Close())
	_ = placeholder.Wait()
	require.Equal(t, 1, placeholder.ProcessState.ExitCode())
	require.NoFileExists(t, started)
}

func TestHoldRejectsInvalidArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"3", "x", "true", "true"}, {"0", "1", "true", "true"}} {
		require.Equal(t, 2, supervise.Hold(args))
	}
}
