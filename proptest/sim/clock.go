package sim

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// clock is what one party believes the time to be: two readings, as lease has
// them, that run at about the rate of true time unless someone interferes.
type clock struct {
	since         time.Duration // true time of the last interference
	running, boot time.Duration // what was read then
	ppm           int64         // by how much it runs too fast
	suspended     bool          // running stands still, boot does not
	stopped       bool          // both stand still
}

// read is the two readings at true time now.
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

// set keeps the readings and lets change how they go on.
func (c *clock) set(now time.Duration, change func(c *clock)) {
	c.running, c.boot = c.read(now)
	c.since = now
	change(c)
}

// instant is the reading as package lease knows it.
func (c *clock) instant(now time.Duration) engine.Instant {
	running, boot := c.read(now)
	return engine.NewInstant(epoch.Add(running), boot)
}

// wall is one reading, for processes that have no second clock.
func (c *clock) wall(now time.Duration) time.Duration {
	_, boot := c.read(now)
	return boot
}

// epoch is when all clocks begin.
var epoch = time.Unix(1_000_000_000, 0).UTC()
