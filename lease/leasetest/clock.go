package leasetest

import (
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease"
)

// Clock is a lease.Clock for tests: the monotonic clock, which in a synctest
// bubble is the bubble's, and beside it a boot-time clock that goes on while
// the machine is suspended.
type Clock struct {
	start     lease.Instant
	suspended atomic.Int64
}

// NewClock returns a Clock that has never been suspended.
func NewClock() *Clock { return &Clock{start: lease.MonotonicClock().Now()} }

// Now reads both clocks.
func (c *Clock) Now() lease.Instant {
	running := lease.MonotonicClock().Now()
	boot := running.Since(c.start) + time.Duration(c.suspended.Load())
	return lease.NewInstant(running.Time(), boot)
}

// Suspend lets d pass as if the machine had slept: timers and the monotonic
// clock do not notice it, the boot-time clock does.
func (c *Clock) Suspend(d time.Duration) { c.suspended.Add(int64(d)) }
