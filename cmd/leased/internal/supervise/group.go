//go:build unix

package supervise

import (
	"os"
	"os/exec"
	"os/signal"
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

// isTerminal reports whether f is a terminal with this process in the foreground.
func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// takeTerminal brings this process back to the foreground of the terminal.
func takeTerminal(f *os.File) {
	signal.Ignore(syscall.SIGTTOU) // otherwise the kernel stops a background process here
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
}
