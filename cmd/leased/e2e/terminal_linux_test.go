package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (terminal, program *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	raw, err := terminal.SyscallConn()
	require.NoError(t, err)
	var number int
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Close() })
	return terminal, program
}

// onTerminal starts a program in its own session, on a pseudo-terminal.
func onTerminal(t *testing.T, env []string, args ...string) (*process, *os.File) {
	t.Helper()
	terminal, program := openTerminal(t)
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = program, program, program
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, p.cmd.Start())
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := terminal.Read(buffer)
			_, _ = p.output.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
	})
	return p, terminal
}

// A command under `leased run` can read from the terminal, and Ctrl-C reaches it. When it
// has ended, the terminal belongs to the shell again.
func TestRunOnTerminal(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	script := leased + ` run nightly -- sh -c 'trap "echo interrupted; exit 6" INT; echo ready; read line; ` +
		`echo "got $line"; while :; do sleep 0.05; done'; echo "code $?"; read line; echo "mine again: $line"`
	p, terminal := onTerminal(t, endpoint(api), "sh", "-i", "-c", script)
	hasTheTerminal(t, p, terminal, "\x03") // Ctrl-C
}

// hasTheTerminal checks that a command reads a line from the terminal and is ended by keys, and that the shell then has
// the terminal again.
func hasTheTerminal(t *testing.T, p *process, terminal *os.File, keys string) {
	t.Helper()
	write := func(text string) {
		_, err := terminal.WriteString(text)
		require.NoError(t, err)
	}
	p.says("ready")
	write("hello\n")
	p.says("got hello")
	write(keys)
	p.says("interrupted")
	p.says("code 6")
	write("back\n")
	p.says("mine again: back")
	require.Zero(t, p.code())
}

// A command that is not in the foreground from the beginning gets the terminal when it reads from it, and Ctrl-Z, which
// would leave it stopped, has no effect.
func TestRunAsksOnTerminal(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	script := leased + ` run nightly -- sh -c 'trap "echo interrupted; exit 6" INT; echo ready; read line < /dev/tty; ` +
		`echo "got $line"; while :; do sleep 0.05; done' < /dev/null; echo "code $?"; read line; echo "mine again: $line"`
	p, terminal := onTerminal(t, endpoint(api), "sh", "-i", "-c", script)
	hasTheTerminal(t, p, terminal, "\x1a\x03") // Ctrl-Z, Ctrl-C
}

// A pager behind `leased run` can read from the terminal while the command runs.
func TestRunBeforeAPager(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	script := leased + ` run nightly -- sh -c 'echo ready; sleep 1000' | ` +
		`sh -c 'trap : INT; read line; echo "$line" >&2; read line < /dev/tty; echo "got $line"'; echo "ended"`
	p, terminal := onTerminal(t, endpoint(api), "sh", "-i", "-c", script)
	p.says("ready")
	_, err := terminal.WriteString("hello\n")
	require.NoError(t, err)
	p.says("got hello")
	_, err = terminal.WriteString("\x03") // Ctrl-C
	require.NoError(t, err)
	p.says("ended")
}

// A command can read from the terminal even if a shell that reads its output makes it ignore the signals of the
// terminal, and after a shell has brought `leased run` to the foreground.
func TestRunInAShell(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	asks := leased + ` run nightly -- sh -c 'echo ready > /dev/tty; read line < /dev/tty; echo "got $line"'`
	for name, script := range map[string]string{
		"substitution": `x=$(` + asks + `); echo "printed $x"`,
		"foreground":   asks + ` & until ps -e -o stat=,args= | grep -q '^T.*read lin[e]'; do sleep 0.1; done; sleep 1; fg`,
	} {
		p, terminal := onTerminal(t, endpoint(api), "bash", "--norc", "-i", "-c", script)
		p.says("ready")
		_, err := terminal.WriteString("hello\n")
		require.NoError(t, err)
		p.says("got hello")
		require.Zero(t, p.code(), name)
	}
}

// While it waits, `leased run` shows the holder and its position in the queue, in several lines of a narrow terminal.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	holder := start(t, env, leased, "run", "nightly", "--holder=ann", "--", "sh", "-c", "echo ready; sleep 1000")
	holder.says("ready")
	first, _ := onTerminal(t, env, leased, "run", "nightly", "--holder=ben", "--", "true")
	first.says("number 1 of 1 in the queue")
	second, terminal := onTerminal(t, env, leased, "run", "nightly", "--holder=cat", "--", "true")
	require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 40, Row: 24}))
	second.says("\r\x1b[A\x1b[A\x1b[J" + `waiting for "nightly"`) // it replaces the whole text
	second.says("held by ann with token ")
	second.says("number 2 of 2 in the queue")
	first.says("number 1 of 2 in the queue")
	_, err := terminal.WriteString("\x03")
	require.NoError(t, err)
	require.Equal(t, 128+int(syscall.SIGINT), second.code())
	holder.signal(syscall.SIGTERM)
	require.Zero(t, first.code())
}
