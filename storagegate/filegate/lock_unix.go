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

// How long a waiting writer sleeps between two looks at the lock. The system
// call that waits cannot be given up when the context ends.
const (
	firstWait   = 100 * time.Microsecond
	longestWait = 10 * time.Millisecond
)

// lock takes the lock of a resource against every other process, and against
// other goroutines of this one: each call opens the file anew, and flock tells
// open files apart. The system drops the lock when the process dies. The file
// stays: removing it would let two writers lock two different files. If somebody
// else removes it, the lock counts only as long as it is on the file that has
// the name.
func lock(ctx context.Context, path string) (*held, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open the lock: %w", err)
		}
		if err := wait(ctx, f); err != nil {
			_ = f.Close()
			return nil, err
		}
		h := &held{file: f, path: path}
		err = h.still()
		if err == nil {
			return h, nil
		}
		h.release()
		if !errors.Is(err, ErrLockRemoved) {
			return nil, err
		}
	}
}

// held is a lock that was taken.
type held struct {
	file *os.File
	path string
}

func (h *held) release() { _ = h.file.Close() }

// still returns an error if the file that is locked has lost its name.
func (h *held) still() error {
	locked, err := h.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the lock: %w", err)
	}
	named, err := os.Stat(h.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(locked, named) {
		return ErrLockRemoved
	}
	if err != nil {
		return fmt.Errorf("look at the lock: %w", err)
	}
	return nil
}

// wait waits for the lock on an open file.
func wait(ctx context.Context, f *os.File) error {
	pause := firstWait
	for {
		err := flock(f)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("take the lock: %w", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
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
