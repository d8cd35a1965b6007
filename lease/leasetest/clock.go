package leasetest

import (
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Clock is a engine.Clock for tests: the monotonic clock, which in a synctest
// bubble is the bubble's, and beside it a boot-time clock that goes on while
// the machine is suspended.
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

// Suspend lets d pass as if the machine had slept: timers and the monotonic
// clock do not notice it, the boot-time clock does.
func (c *Clock) Suspend(d time.Duration) { c.suspended.Add(int64(d)) }

// StoppedClock is a engine.Clock that stands still until a test moves it, as
// between a question and its answer: what was read before and what after is told
// apart, however fast the service is.
type StoppedClock struct {
	start engine.Instant
	moved atomic.Int64
}

// NewStoppedClock returns a StoppedClock that was never moved.
func NewStoppedClock() *StoppedClock { return &StoppedClock{start: engine.SystemClock().Now()} }

// Now is how far the clock was moved.
func (c *StoppedClock) Now() engine.Instant { return c.start.Add(time.Duration(c.moved.Load())) }

// Move lets d pass.
func (c *StoppedClock) Move(d time.Duration) { c.moved.Add(int64(d)) }
