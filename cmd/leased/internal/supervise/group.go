//go:build unix

package supervise

import (
	"os/exec"
	"syscall"
)

// group is the process group of the command. Its number is the process id of
// the command, its leader. 0 is none.
type group int

// signal sends a signal to every process of the group.
func (g group) signal(number syscall.Signal) {
	if g > 0 {
		_ = syscall.Kill(-int(g), number) // that nobody is left is no error
	}
}

// reap takes the exit code of the leader and waits until the rest of the group,
// which was killed, is gone.
func (g group) reap(cmd *exec.Cmd) int {
	_ = cmd.Wait() // the state has it all
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
