//go:build unix

package logstore

import (
	"os"
	"syscall"
)

func flock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
