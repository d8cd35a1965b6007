//go:build unix

package main

import (
	"math"
	"syscall"

	"github.com/leased-project/leased/cmd/leased/internal/supervise"
)

// ownGroup returns the attributes of a process in its own process group, which keys such as Ctrl-C do not reach.
func ownGroup() *syscall.SysProcAttr { return supervise.OwnGroup() }

// openFiles returns how many files and connections the process may have open.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur) // of another type on some systems
}
