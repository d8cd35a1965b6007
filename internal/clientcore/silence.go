package clientcore

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// HeartbeatInterval is the longest time between two messages of a member on a session
	// stream: an empty one if there is nothing else to send. HTTP/2 pings would not do,
	// because a proxy answers them in the place of a member.
	HeartbeatInterval = 500 * time.Millisecond
	// SilenceCheckInterval is how often a driver calls Silence.Check.
	SilenceCheckInterval = 250 * time.Millisecond
	// silenceLimit is the time without a message after which a member is silent. It is
	// three intervals, because a busy member may be late, and with one
	// SilenceCheckInterval more it is below two seconds.
	silenceLimit = 3 * HeartbeatInterval
)

// Silence decides whether a member no longer answers: it is stopped, or the network has
// cut it off without closing the connection. TCP does not notice a stopped process, and the
// keep-alive of gRPC takes ten seconds or more. The zero Silence is ready to use.
type Silence struct {
	checked  engine.Instant // the last Check
	received uint64         // at the last Check
	quiet    time.Duration  // the time without a message, as far as this process was running
}

// Check reports whether the member is silent. received is the number of messages so far. A
// pause of this process says nothing about the member: its messages may be waiting to be
// read. So no step counts for more than two intervals between checks.
func (s *Silence) Check(now engine.Instant, received uint64) bool {
	step := min(now.Since(s.checked), 2*SilenceCheckInterval)
	if s.checked.IsZero() || received != s.received {
		step, s.quiet = 0, 0
	}
	s.checked, s.received = now, received
	s.quiet += step
	return s.quiet >= silenceLimit
}
