package heartbeat

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// Interval is the longest time between two messages of a member on a session stream.
	Interval = 500 * time.Millisecond
	// CheckInterval is how often a client calls Silence.Check.
	CheckInterval = 250 * time.Millisecond
	// limit is the time without a message after which a stream is silent. It is three
	// intervals, so that a busy member may be late, and with one CheckInterval more it is
	// below two seconds.
	limit = 3 * Interval
)

// Silence decides whether a member is silent. The zero Silence is ready to use.
type Silence struct {
	checked  engine.Instant // the last Check
	received uint64         // at the last Check
	quiet    time.Duration  // the time without a message, as far as this process was running
}

// Check reports whether the member is silent. received is the number of messages so far. A
// pause of this process says nothing about the member: its messages may be waiting to be
// read. So no step counts for more than two intervals between checks.
func (s *Silence) Check(now engine.Instant, received uint64) bool {
	step := min(now.Since(s.checked), 2*CheckInterval)
	if s.checked.IsZero() || received != s.received {
		step, s.quiet = 0, 0
	}
	s.checked, s.received = now, received
	s.quiet += step
	return s.quiet >= limit
}
