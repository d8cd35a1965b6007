//go:build unix

package supervise

import (
	"os/exec"
	"syscall"
)

// group is the id of the command's process group, which is the process id of the
// command. 0 means none.
type group int

// signal sends a signal to every process of the group.
func (g group) signal(number syscall.Signal) {
	if g > 0 {
		_ = syscall.Kill(-int(g), number) // an empty group is not an error
	}
}

// reap returns the exit code of the command, and waits until the rest of the killed
// group is gone.
func (g group) reap(cmd *exec.Cmd) int {
	_ = cmd.Wait() // ProcessState has the result
	for {
		_, err := syscall.Wait4(-int(g), nil, 0, nil)
		if err != nil && err != syscall.EINTR {
			break
		}
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}
