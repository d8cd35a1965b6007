package supervise_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leased-project/leased/cmd/leased/internal/supervise"
)

// blockSignal blocks a signal for this thread and for what it starts.
func blockSignal() {
	runtime.LockOSThread()
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR2 - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
}

// signals and environment print what a program inherits. A shell would change the
// signals.
var (
	signals     = []string{"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"}
	environment = []string{"sh", "-c", `ulimit -a; ls /proc/self/fd; cat <&3; umask; pwd; env | grep -v ^LEASED_ | sort
		[ $(cut -d " " -f 5 /proc/$$/stat) = $$ ] && echo leads its group`}
)

// The command inherits the same as without a placeholder.
func TestCommandInheritsTheSameWithPlaceholder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("the third file\n"), 0o600))
	see := func(mode string, args []string) string {
		cmd := exec.Command("sh", "-c", `trap "" HUP INT QUIT PIPE TERM TSTP TTOU USR1; ulimit -Sn 100; umask 027; cd /
			exec 3<`+file+` 5<`+file+`; exec "$0" "$@"`, os.Args[0], mode)
		cmd.Args = append(cmd.Args, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "THIS=that", "GOMAXPROCS=1"}
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	plain := see("plain", signals)
	require.Regexp(t, `SigBlk:\s*0*800\n`, plain)
	require.Regexp(t, `SigIgn:\s*[0-9a-f]*[1-9a-f]`, plain)
	require.Equal(t, plain, see("supervisor", signals))

	plain = see("plain", environment)
	for _, line := range []string{"the third file\n", "THIS=that\n", "leads its group\n"} {
		require.Contains(t, plain, line)
	}
	require.Equal(t, plain, see("supervisor", environment))
}

// The kernel kills the command when its supervisor ends, even if the guard does
// nothing.
func TestCommandEndsWithSupervisor(t *testing.T) {
	o := newOutput(t)
	supervisor := o.start("supervisor with a blind guard", "echo ready; exec sleep 90")
	o.open()
	o.says("ready")
	require.NoError(t, supervisor.Process.Kill())
	o.ends()
}

// Processes that the command has left behind do not stay in the table of processes until the command ends.
func TestOrphansAreReaped(t *testing.T) {
	s := newFixture(t, "sh", "-c", `for i in 1 2 3 4 5; do (sleep 0.1 & echo $!); done; exec sleep 1000`)
	s.start()
	for range 5 {
		pid, err := strconv.Atoi(s.read())
		require.NoError(t, err)
		require.Eventually(t, func() bool { return unix.Kill(pid, 0) == unix.ESRCH }, testTimeout/4, 10*time.Millisecond)
	}
	s.signals <- unix.SIGTERM
	require.Equal(t, 128+int(unix.SIGTERM), s.wait().Code)
}

// A command that is stopped, as by a read from the terminal in the background, can be ended.
func TestStoppedCommandCanBeEnded(t *testing.T) {
	s := newFixture(t, "sh", "-c", `trap "exit 9" INT; echo $$; kill -STOP $$; while :; do sleep 0.05; done`)
	s.start()
	stat := "/proc/" + s.read() + "/stat"
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(stat)
		return err == nil && strings.Contains(string(text), ") T ")
	}, testTimeout, 10*time.Millisecond)
	s.signals <- unix.SIGINT
	select {
	case <-s.ended:
		require.Equal(t, supervise.Result{Code: 9}, s.wait())
	case <-time.After(testTimeout / 4):
		require.Fail(t, "the command has not ended")
	}
}
