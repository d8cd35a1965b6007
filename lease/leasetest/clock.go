package leasetest

import (
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Clock is an engine.Clock for tests: the monotonic clock, which is virtual in a
// synctest bubble, and a boot-time clock that also runs while the machine is
// suspended.
type Clock struct {
	start     engine.Instant
	suspended atomic.Int64
}

// NewClock returns a Clock that has never been suspended.
func NewClock() *Clock { return &Clock{start: engine.MonotonicClock().Now()} }

// Now reads both clocks.
func (c *Clock) Now() engine.Instant {
	running := engine.MonotonicClock().Now()
	boot := running.Since(c.start) + time.Duration(c.suspended.Load())
	return engine.NewInstant(running.Time(), boot)
}

// Suspend advances only the boot-time clock by d, as if the machine had been
// suspended. Timers and the monotonic clock do not notice.
func (c *Clock) Suspend(d time.Duration) { c.suspended.Add(int64(d)) }

// StoppedClock is an engine.Clock that advances only when a test moves it, for example
// between a request and its answer, so that readings before and after differ.
type StoppedClock struct {
	start engine.Instant
	moved atomic.Int64
}

// NewStoppedClock returns a StoppedClock that was never moved.
func NewStoppedClock() *StoppedClock { return &StoppedClock{start: engine.SystemClock().Now()} }

// Now returns the start plus the time by which the clock was moved.
func (c *StoppedClock) Now() engine.Instant { return c.start.Add(time.Duration(c.moved.Load())) }

// Move advances the clock by d.
func (c *StoppedClock) Move(d time.Duration) { c.moved.Add(int64(d)) }
