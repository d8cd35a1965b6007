//go:build unix

package logstore

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir makes this process the only user of a folder. The lock ends with the process.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another process is using %s: %w", dir, err)
	}
	return file, nil
}
