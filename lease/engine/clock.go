package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Clock provides the time to clients and engines. It is injected, so that tests can
// pause, drift and suspend it. All methods may be called concurrently.
type Clock interface {
	// Now returns the current Instant. Only differences between two readings of the
	// same Clock are meaningful.
	Now() Instant
}

// Instant is a reading of two clocks: one that stops while the machine is suspended,
// and one that does not. The more pessimistic of the two counts.
type Instant struct {
	running time.Time     // with Go's monotonic reading
	boot    time.Duration // since the machine started, including suspend; 0 if unknown
}

// NewInstant returns an Instant with both readings. boot is the time since a fixed
// moment, on a clock that also advances during suspend.
func NewInstant(running time.Time, boot time.Duration) Instant {
	return Instant{running: running, boot: boot}
}

// IsZero reports whether i is the zero Instant.
func (i Instant) IsZero() bool { return i == Instant{} }

// Since returns the time from earlier to i, by the clock on which it is longer.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.running.Sub(earlier.running), i.boot-earlier.boot)
}

// Until returns the time from i to later, by the clock on which it is shorter.
func (i Instant) Until(later Instant) time.Duration {
	return min(later.running.Sub(i.running), later.boot-i.boot)
}

// Add returns the Instant i+d.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{running: i.running.Add(d), boot: i.boot + d}
}

// Time returns i as a wall-clock time, for people and for contexts.
func (i Instant) Time() time.Time { return i.running }

// SystemClock returns a Clock that reads CLOCK_MONOTONIC and, on Linux,
// CLOCK_BOOTTIME, which also advances while the machine is suspended.
func SystemClock() Clock { return systemClock{} }

// MonotonicClock returns a Clock that reads only the clock that stops during suspend.
// It is for tests: in a synctest bubble it is the bubble's clock.
func MonotonicClock() Clock { return monotonicClock{} }

// Cause returns why ctx ended, for the error of an engine's call. It never matches ErrLost: a caller may pass the
// context of another lease, whose loss is not the loss of what the call is about.
func Cause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrLost) {
		return fmt.Errorf("%w: %v", ctx.Err(), cause)
	}
	return cause
}

// Sleep waits for d. If ctx ends first it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return Cause(ctx)
	}
}

type systemClock struct{}

func (systemClock) Now() Instant { return Instant{running: time.Now(), boot: boottime()} }

type monotonicClock struct{}

func (monotonicClock) Now() Instant { return Instant{running: time.Now()} }
