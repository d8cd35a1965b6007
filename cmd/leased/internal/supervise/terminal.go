//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

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
