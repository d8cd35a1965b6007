//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether f is the terminal that this process controls.
func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// takeTerminal makes this process the foreground of the terminal again, which
// it had given to the command.
func takeTerminal(f *os.File) {
	signal.Ignore(syscall.SIGTTOU) // else it would be stopped for this
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
}
