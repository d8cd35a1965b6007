//go:build unix

package supervise

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is the id of the command's process group, which is the process id of the
// command. 0 means none.
type group int

// signal sends a signal to every process of the group. Stopped processes continue if the signal asks them to end: they
// could not clean up.
func (g group) signal(number syscall.Signal) {
	if g <= 0 {
		return
	}
	_ = syscall.Kill(-int(g), number) // an empty group is not an error
	switch number {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		_ = syscall.Kill(-int(g), syscall.SIGCONT)
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

// foreground returns the foreground process group of a terminal, or -1 if f is not the controlling terminal. It is not
// 0 then: that is the own group of a process that entered a PID namespace from outside.
func foreground(f *os.File) int {
	id, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return id
}

func setForeground(terminal *os.File, id int) {
	_ = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPGRP, id)
}
