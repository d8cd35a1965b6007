//go:build unix

package filegate

import (
	"context"
	"errors"
	"fmt"
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
// stays: removing it would let two writers lock two different files.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	wait := firstWait
	for {
		err := flock(f)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("take the lock: %w", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			_ = f.Close()
			return nil, ctx.Err()
		}
		wait = min(2*wait, longestWait)
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
