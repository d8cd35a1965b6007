//go:build unix

package supervise

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a held process says. Then it is the program, which closes the pipe, or
// it says the number of the error.
const heldBegins = "begin "

// held is a process that becomes the command when it is let go, and ends if it
// never is. It has the number, and the group, that the command will have.
type held struct {
	cmd     *exec.Cmd
	program *exec.Cmd
	word    *os.File // one byte lets it go
	report  *os.File // what it says
	begun   chan struct{}
	said    string // to be read after begun
}

// startHeld starts a process that becomes program. args are how to start a
// process that calls Hold.
func startHeld(args []string, program *exec.Cmd) (*held, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: %s: no way to hold it was given", ErrNotExecutable, program.Args[0])
	}
	h := &held{program: program, begun: make(chan struct{})}
	if err := h.start(args); err != nil {
		h.close()
		return nil, fmt.Errorf("%w: %s: %w", ErrNotExecutable, program.Args[0], err)
	}
	go func() {
		defer close(h.begun)
		said, _ := io.ReadAll(h.report)
		h.said = string(said)
	}()
	return h, nil
}

func (h *held) start(args []string) (err error) {
	var theirs [2]*os.File
	if theirs[0], h.word, err = os.Pipe(); err != nil {
		return err
	}
	defer theirs[0].Close()
	if h.report, theirs[1], err = os.Pipe(); err != nil {
		return err
	}
	defer theirs[1].Close()
	files, numbers, err := besideInherited(theirs[:])
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil {
		return err
	}
	h.cmd = exec.Command(args[0], args[1:]...)
	h.cmd.Args = append(append(h.cmd.Args, numbers...), h.program.Path)
	h.cmd.Args = append(h.cmd.Args, h.program.Args...)
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = h.program.Stdin, h.program.Stdout, h.program.Stderr
	h.cmd.Env, h.cmd.SysProcAttr, h.cmd.ExtraFiles = h.program.Env, h.program.SysProcAttr, files
	return h.cmd.Start()
}

// besideInherited gives files numbers under which the command inherits nothing
// else: a shell may have opened 3 for it. It returns what is to be handed on
// from number 3 on, for the caller to close, and the numbers of the files.
func besideInherited(files []*os.File) (all []*os.File, numbers []string, err error) {
	for fd := 3; len(files) > 0; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			all, numbers, files = append(all, files[0]), append(numbers, strconv.Itoa(fd)), files[1:]
			continue
		}
		same, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return all, nil, os.NewSyscallError("fcntl", err)
		}
		all = append(all, os.NewFile(uintptr(same), "inherited"))
	}
	return all, numbers, nil
}

func (h *held) group() group { return group(h.cmd.Process.Pid) }

// letGo makes it the command. That it is gone already shows in what it said.
func (h *held) letGo() { _, _ = h.word.Write([]byte{1}) }

// close is also the end of a process that was not let go.
func (h *held) close() {
	_ = h.word.Close() // nil is an error, and not more
	_ = h.report.Close()
}

// failure is why the process, which has begun and left this exit code, has not
// become the command. One that a signal has ended was as good as the command.
func (h *held) failure(code int) error {
	var number int
	if n, _ := fmt.Sscanf(h.said, heldBegins+"%d", &number); n == 1 {
		return startError(h.program.Args[0], &fs.PathError{Op: "fork/exec", Path: h.program.Path, Err: syscall.Errno(number)})
	}
	if h.said == "" && h.cmd.ProcessState.Exited() {
		return fmt.Errorf("%w: %s: the process that holds it has ended with exit code %d", ErrNotExecutable, h.program.Args[0], code)
	}
	return nil
}
