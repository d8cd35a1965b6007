//go:build linux

package torture

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leased-project/leased/lease/engine"
)

// monotonic reads CLOCK_MONOTONIC, which all processes of this machine share.
func monotonic() time.Duration { return clockTime(unix.CLOCK_MONOTONIC) }

func clockTime(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // every kernel has these clocks
	}
	return time.Duration(t.Nano())
}

// wallOffset is the difference of wall clock and monotonic clock. The storage's log has
// wall times, which are used in diagrams only.
func wallOffset() time.Duration { return clockTime(unix.CLOCK_REALTIME) - monotonic() }

// wait returns after d, or with false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool { return engine.Sleep(ctx, d) == nil }

// retry repeats a call to a server that may be down until it succeeds. It returns the
// last error after limit, or when ctx ends.
func retry(ctx context.Context, limit time.Duration, do func() error) (err error) {
	until(ctx, limit, func() bool { err = do(); return err == nil })
	return err
}

// until polls a condition for at most limit, and reports whether it came true.
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
