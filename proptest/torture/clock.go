//go:build linux

package torture

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the clock that all processes of this machine share, and that
// nobody sets.
func monotonic() time.Duration { return clockTime(unix.CLOCK_MONOTONIC) }

func clockTime(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // no kernel is without these clocks
	}
	return time.Duration(t.Nano())
}

// wallOffset is what to add to a monotonic time for the wall clock, by which the
// storage stamps its log. It is for pictures only.
func wallOffset() time.Duration { return clockTime(unix.CLOCK_REALTIME) - monotonic() }

// wait returns after d, or with false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask does something until it succeeds, with a server that may be away for a
// while. It returns the last error when that takes too long, or ctx ends.
func ask(ctx context.Context, do func() error) (err error) {
	until(ctx, startLimit, func() bool { err = do(); return err == nil })
	return err
}

// until asks again and again whether something is so, for at most limit.
func until(ctx context.Context, limit time.Duration, is func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !is() {
		if !wait(ctx, 50*time.Millisecond) {
			return false
		}
	}
	return true
}
