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

// Hold is the main function of the process that becomes the command: it waits
// for one byte, and then is the program. It returns an exit code if it is not
// let go, or if that fails. args are the numbers of two pipes, to be let go by
// and to report on, the path of the program, and its arguments from the name on.
func Hold(args []string) int {
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, "leased: this is a part of `leased run`; use that")
		return 2
	}
	word, err1 := inherited(args[0])
	report, err2 := inherited(args[1])
	if err := errors.Join(err1, err2); err != nil {
		fmt.Fprintf(os.Stderr, "leased: this is a part of `leased run`; use that: %v\n", err)
		return 2
	}
	// The thread that becomes the program must be the one that is to end with
	// the supervisor.
	runtime.LockOSThread()
	endWithParent()
	if n, _ := word.Read(make([]byte, 1)); n == 0 {
		return 1 // the supervisor has gone, or does not want it any more
	}
	fmt.Fprint(report, heldBegins)
	err := syscall.Exec(args[2], args[3:], os.Environ())
	var number syscall.Errno
	if !errors.As(err, &number) {
		number = syscall.EINVAL
	}
	fmt.Fprint(report, int(number))
	return 1
}

// inherited is a file that the program must not inherit in turn.
func inherited(number string) (*os.File, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%q is not the number of a pipe", number)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "pipe "+number), nil
}
