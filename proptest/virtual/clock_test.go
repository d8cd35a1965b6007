package virtual

import (
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// clock is the clock of one machine. It runs at its own rate, can be set, and
// can stand still while real time goes on.
type clock struct {
	mu      sync.Mutex
	read    time.Time // of the bubble, when passed was right
	passed  time.Duration
	boot    time.Duration // goes on while the machine is suspended
	rate    float64
	own     float64 // the rate that it began with
	stopped bool
	deep    bool // stopped, and nothing on the machine notices
	start   time.Time
}

var _ engine.Clock = (*clock)(nil)

func newClock(rate float64) *clock {
	now := time.Now()
	return &clock{read: now, start: now, rate: rate, own: rate}
}

// advance brings the readings up to the bubble's time. The caller holds mu.
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

// Time is what a wall clock on the machine shows.
func (c *clock) Time() time.Time { return c.Now().Time() }

// jump sets the clock by d, forward or back.
func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	c.passed += d
	c.boot += d
}

// setRate makes the clock run faster or slower than time. It reports whether one
// that runs right, or at its own rate, goes wrong by that: not one that stands,
// nor one that is wrong already.
func (c *clock) setRate(rate float64) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	changed = !c.stopped && rate != c.rate && (c.rate == 1 || c.rate == c.own)
	c.rate = rate
	return changed
}

// stop makes the clock stand still, as in a suspend. Deep: also the one that
// should go on in suspend. It reports whether the clock ran.
func (c *clock) stop(deep bool) (ran bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	ran = !c.stopped
	c.stopped, c.deep = true, deep
	return ran
}

// resume lets it run again, from where it stood.
func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	c.stopped, c.deep = false, false
}
