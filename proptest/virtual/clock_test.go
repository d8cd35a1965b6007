package virtual

import (
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// clock is the clock of one host. It has its own rate, and can be set and stopped.
type clock struct {
	mu      sync.Mutex
	read    time.Time // time of the bubble at the last update
	passed  time.Duration
	boot    time.Duration // continues while the host is suspended
	rate    float64
	own     float64 // the initial rate
	stopped bool
	deep    bool // boot is stopped, too
	start   time.Time
}

var _ engine.Clock = (*clock)(nil)

func newClock(rate float64) *clock {
	now := time.Now()
	return &clock{read: now, start: now, rate: rate, own: rate}
}

// advance updates the readings to the time of the bubble. The caller holds mu.
func (c *clock) advance() {
	now := time.Now()
	step := time.Duration(float64(now.Sub(c.read)) * c.rate)
	c.read = now
	if !c.stopped {
		c.passed += step
	}
	if !c.stopped || !c.deep {
		c.boot += step
	}
}

// Now reads both clocks.
func (c *clock) Now() engine.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return engine.NewInstant(c.start.Add(c.passed), c.boot)
}

// Time returns the wall clock of the host.
func (c *clock) Time() time.Time { return c.Now().Time() }

// jump moves the clock by d, forward or back.
func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	c.passed += d
	c.boot += d
}

// setRate changes the rate of the clock. It reports whether a sound clock became unsound:
// not one that is stopped or already unsound.
func (c *clock) setRate(rate float64) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	changed = !c.stopped && rate != c.rate && (c.rate == 1 || c.rate == c.own)
	c.rate = rate
	return changed
}

// stop stops the clock, as in a suspend; with deep also the reading that continues in a
// suspend. It reports whether the clock was running.
func (c *clock) stop(deep bool) (ran bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	ran = !c.stopped
	c.stopped, c.deep = true, deep
	return ran
}

// resume restarts the clock.
func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	c.stopped, c.deep = false, false
}
