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

// openTerminal is both ends of a terminal: what a person has, and what a
// program has.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = person.Close() })
	raw, err := person.SyscallConn()
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
	return person, program
}

// onTerminal starts a program in a session of its own, on a terminal.
func onTerminal(t *testing.T, env []string, args ...string) (*process, *os.File) {
	t.Helper()
	person, program := openTerminal(t)
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = program, program, program
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, p.cmd.Start())
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := person.Read(buffer)
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
	return p, person
}

// A command under `leased run` can read from the terminal, and gets its keys.
// After it the terminal belongs to who had it.
func TestRunOnATerminal(t *testing.T) {
	_, api := single(t)
	script := leased + ` run nightly -- sh -c 'trap "echo interrupted; exit 6" INT; echo ready; read line; echo "got $line"; while :; do sleep 0.05; done'; echo "code $?"; read line; echo "mine again: $line"`
	p, person := onTerminal(t, endpoint(api), "sh", "-i", "-c", script)
	p.says("ready")
	_, err := person.WriteString("hello\n")
	require.NoError(t, err)
	p.says("got hello")
	_, err = person.WriteString("\x03") // Ctrl-C
	require.NoError(t, err)
	p.says("interrupted")
	p.says("code 6")
	_, err = person.WriteString("back\n")
	require.NoError(t, err)
	p.says("mine again: back")
	require.Zero(t, p.code())
}

// Who waits sees on one line for whom, and where in the queue.
func TestTheWaitingLine(t *testing.T) {
	_, api := single(t)
	env := endpoint(api)
	holder := start(t, env, leased, "run", "nightly", "--holder=ann", "--", "sh", "-c", "echo ready; sleep 1000")
	holder.says("ready")
	first, _ := onTerminal(t, env, leased, "run", "nightly", "--holder=ben", "--", "true")
	first.says("place 1 of 1 in the queue")
	second, person := onTerminal(t, env, leased, "run", "nightly", "--holder=cat", "--", "true")
	second.says("held by ann, token ")
	second.says("place 2 of 2 in the queue")
	first.says("place 1 of 2 in the queue")
	_, err := person.WriteString("\x03")
	require.NoError(t, err)
	require.Equal(t, 128+int(syscall.SIGINT), second.code())
	holder.signal(syscall.SIGTERM)
	require.Zero(t, first.code())
}
