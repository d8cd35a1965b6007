package sim

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// clock is the clock of one process. It has two readings, as engine.Instant, which run at
// about the rate of simulated time unless a fault changes them.
type clock struct {
	since         time.Duration // simulated time of the last change
	running, boot time.Duration // the readings at that time
	ppm           int64         // by which it runs too fast
	suspended     bool          // running is stopped, boot is not
	stopped       bool          // both are stopped
}

// read returns both readings at simulated time now.
func (c *clock) read(now time.Duration) (running, boot time.Duration) {
	passed := now - c.since
	passed += time.Duration(int64(passed) / 1000 * c.ppm / 1000)
	running, boot = c.running, c.boot
	if !c.stopped {
		boot += passed
		if !c.suspended {
			running += passed
		}
	}
	return running, boot
}

// set keeps the readings and changes how they continue.
func (c *clock) set(now time.Duration, change func(c *clock)) {
	c.running, c.boot = c.read(now)
	c.since = now
	change(c)
}

// instant returns both readings as an Instant.
func (c *clock) instant(now time.Duration) engine.Instant {
	running, boot := c.read(now)
	return engine.NewInstant(epoch.Add(running), boot)
}

// wall returns one reading, for processes without a second clock.
func (c *clock) wall(now time.Duration) time.Duration {
	_, boot := c.read(now)
	return boot
}

// epoch is the start of all clocks.
var epoch = time.Unix(1_000_000_000, 0).UTC()
