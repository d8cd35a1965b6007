//go:build unix

package main

import (
	"os"
	"slices"
	"syscall"
)

// endSignals end the wait for the lock.
var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// ownSignals concern this process: its children, its terminal, its runtime. The last two cannot be caught.
var ownSignals = []syscall.Signal{syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU,
	syscall.SIGPROF, syscall.SIGKILL, syscall.SIGSTOP}

// lateSignals are forwarded only once the command has started. Before that, SIGWINCH is of no use to it and could fill
// the queue of signals, and SIGTSTP (Ctrl-Z) stops this process, which waits for the lock.
var lateSignals = []os.Signal{syscall.SIGWINCH, syscall.SIGTSTP}

// forwardedSignals returns the signals that the command gets, also those that arrive before it starts.
func forwardedSignals() (all []os.Signal) {
	for number := syscall.Signal(1); number < 32; number++ {
		if !slices.Contains(lateSignals, os.Signal(number)) && !slices.Contains(ownSignals, number) {
			all = append(all, number)
		}
	}
	return all
}
