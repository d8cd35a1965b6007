//go:build unix

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
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

// lockFolder ensures that only one `leased dev` uses a folder. The lock ends with
// the process.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("data folder %s is in use by another `leased dev`: use that one, stop it, or give another "+
			"--data, --listen and --raft-listen", dir)
	}
	return func() { file.Close() }, nil
}
