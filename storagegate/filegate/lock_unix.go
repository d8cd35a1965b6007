//go:build unix

package filegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// How long a waiting writer sleeps between two attempts to lock. The system call
// that waits for a lock cannot be cancelled.
const (
	firstWait   = 100 * time.Microsecond
	longestWait = 10 * time.Millisecond
)

// lock locks a resource against other processes and against other goroutines of
// this process: each call opens the file again, and flock locks open files. The
// system releases the lock when the process ends. The file is never removed,
// because two writers could then lock two different files. If something else
// removes it, the lock is valid only while path names the locked file.
func lock(ctx context.Context, path string) (*held, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open the lock file: %w", err)
		}
		if err := wait(ctx, f); err != nil {
			_ = f.Close()
			return nil, err
		}
		h := &held{file: f, path: path}
		err = h.check()
		if err == nil {
			return h, nil
		}
		h.release()
		if !errors.Is(err, ErrLockRemoved) {
			return nil, err
		}
	}
}

// held is a locked file.
type held struct {
	file *os.File
	path string
}

func (h *held) release() { _ = h.file.Close() }

// check returns ErrLockRemoved if path does not name the locked file any more.
func (h *held) check() error {
	locked, err := h.file.Stat()
	if err != nil {
		return fmt.Errorf("check the lock file: %w", err)
	}
	named, err := os.Stat(h.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(locked, named) {
		return ErrLockRemoved
	}
	if err != nil {
		return fmt.Errorf("check the lock file: %w", err)
	}
	return nil
}

// wait locks an open file.
func wait(ctx context.Context, f *os.File) error {
	pause := firstWait
	for {
		err := flock(f)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("lock the lock file: %w", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("another process holds %s, and may be stopped in the middle of a write: %w", f.Name(), ctx.Err())
		}
		pause = min(2*pause, longestWait)
	}
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
