//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

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
