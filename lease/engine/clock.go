package engine

import "time"

// Clock is where a Client reads the time that has passed. It is injected, so
// that tests can pause, drift and suspend it. All methods may be called
// concurrently.
type Clock interface {
	// Now is the present moment. Only differences of two readings of one Clock
	// mean anything.
	Now() Instant
}

// Instant is a moment, read on two clocks: one that stops while the machine is
// suspended, and one that does not. Of the two the more pessimistic counts.
type Instant struct {
	running time.Time     // with Go's monotonic reading
	boot    time.Duration // since the machine started, suspended or not; 0 where unknown
}

// NewInstant makes an Instant from both readings. boot is the time since any
// fixed moment on a clock that also runs in suspend.
func NewInstant(running time.Time, boot time.Duration) Instant {
	return Instant{running: running, boot: boot}
}

// IsZero reports whether i is no moment at all.
func (i Instant) IsZero() bool { return i == Instant{} }

// Since is how much time has passed from earlier to i, by the clock that says
// more.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.running.Sub(earlier.running), i.boot-earlier.boot)
}

// Until is how much time is left from i to later, by the clock that says less.
func (i Instant) Until(later Instant) time.Duration {
	return min(later.running.Sub(i.running), later.boot-i.boot)
}

// Add is i moved by d.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{running: i.running.Add(d), boot: i.boot + d}
}

// Time is i as a wall-clock time, for people and for contexts.
func (i Instant) Time() time.Time { return i.running }

// SystemClock reads CLOCK_MONOTONIC and, on Linux, CLOCK_BOOTTIME, which goes
// on while the machine is suspended.
func SystemClock() Clock { return systemClock{} }

// MonotonicClock reads only the clock that stops in suspend. It is for tests:
// in a synctest bubble it is the bubble's clock.
func MonotonicClock() Clock { return monotonicClock{} }

type systemClock struct{}

func (systemClock) Now() Instant { return Instant{running: time.Now(), boot: boottime()} }

type monotonicClock struct{}

func (monotonicClock) Now() Instant { return Instant{running: time.Now()} }
