//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// startReport is the message of a placeholder before exec. If exec fails, the error
// number follows.
const startReport = "begin "

// placeholder is a process that becomes the command when it is started, and exits if
// it never is. It has the process id and the group of the command.
type placeholder struct {
	cmd     *exec.Cmd
	program *exec.Cmd
	start   *os.File // one byte starts the command
	report  *os.File
	begun   chan struct{}
	said    string // the report; read it after begun
}

// startPlaceholder starts the placeholder of program. args is the command line of a
// process that calls Hold.
func startPlaceholder(args []string, program *exec.Cmd) (*placeholder, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: %s: Command.Hold is empty", ErrNotExecutable, program.Args[0])
	}
	h := &placeholder{program: program, begun: make(chan struct{})}
	if err := h.launch(args); err != nil {
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

func (h *placeholder) launch(args []string) (err error) {
	var theirs [2]*os.File
	if theirs[0], h.start, err = os.Pipe(); err != nil {
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

// besideInherited assigns descriptors to files, other than those that the command
// inherits: a shell may have opened 3 for it. It returns the ExtraFiles,
// which the caller closes, and the descriptors of files.
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

func (h *placeholder) group() group { return group(h.cmd.Process.Pid) }

// startCommand turns the placeholder into the command. If the placeholder has
// exited, failure reports it.
func (h *placeholder) startCommand() { _, _ = h.start.Write([]byte{1}) }

// close also ends a placeholder that was not started.
func (h *placeholder) close() {
	_ = h.start.Close() // returns an error if it is nil
	_ = h.report.Close()
}

// failure returns why the placeholder, which has exited with this code, did not
// become the command. A placeholder that a signal ended counts as the command.
func (h *placeholder) failure(code int) error {
	var number int
	if n, _ := fmt.Sscanf(h.said, startReport+"%d", &number); n == 1 {
		return startError(h.program.Args[0], &fs.PathError{Op: "fork/exec", Path: h.program.Path, Err: syscall.Errno(number)})
	}
	if h.said == "" && h.cmd.ProcessState.Exited() {
		return fmt.Errorf("%w: %s: its placeholder exited with code %d", ErrNotExecutable, h.program.Args[0], code)
	}
	return nil
}

// Hold is the main function of the placeholder: it waits for one byte and then
// executes the program. It returns an exit code if the byte does not come or exec
// fails. args are the file descriptors of two pipes, to wait on and to report to,
// the path of the program, and its argument vector.
func Hold(args []string) int {
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, "leased: only `leased run` runs this command")
		return 2
	}
	start, err1 := inherited(args[0])
	report, err2 := inherited(args[1])
	if err := errors.Join(err1, err2); err != nil {
		fmt.Fprintf(os.Stderr, "leased: only `leased run` runs this command: %v\n", err)
		return 2
	}
	// The thread that calls exec must have the parent death signal.
	runtime.LockOSThread()
	endWithParent()
	if n, _ := start.Read(make([]byte, 1)); n == 0 {
		return 1 // the supervisor has exited or has given up
	}
	fmt.Fprint(report, startReport)
	err := syscall.Exec(args[2], args[3:], os.Environ())
	var number syscall.Errno
	if !errors.As(err, &number) {
		number = syscall.EINVAL
	}
	fmt.Fprint(report, int(number))
	return 1
}

// inherited opens a file descriptor that the program must not inherit.
func inherited(number string) (*os.File, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%q is not a file descriptor of a pipe", number)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "pipe "+number), nil
}
