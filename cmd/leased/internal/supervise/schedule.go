//go:build unix

package supervise

import (
	"fmt"
	"time"
)

// MinTTL is the shortest TTL that leaves time to stop a command.
const MinTTL = time.Second

// schedule says how long before the deadline of the lease things happen.
type schedule struct {
	kill time.Duration // before the deadline: SIGKILL
	term time.Duration // before the deadline: SIGTERM
	poll time.Duration // how often the lease is looked at
}

// DefaultGrace is the time between SIGTERM and SIGKILL for a TTL.
func DefaultGrace(ttl time.Duration) time.Duration { return ttl / 5 }

// Check reports whether a command can be stopped in time with these timings.
// Two thirds of the TTL are for renewals and their retries.
func Check(ttl, grace time.Duration) error {
	switch {
	case ttl < MinTTL:
		return fmt.Errorf("ttl (%v) must be at least %v, to leave time to stop the command", ttl, MinTTL)
	case grace < 0 || grace > ttl/3:
		return fmt.Errorf("grace (%v) must be from 0 to a third of ttl (%v): the rest is for renewals", grace, ttl)
	}
	return nil
}

// newSchedule leaves a tenth of the TTL between SIGKILL and the deadline:
// the kernel needs a moment, and so does a busy machine.
func newSchedule(ttl, grace time.Duration) schedule {
	kill := ttl / 10
	return schedule{kill: kill, term: kill + grace, poll: min(250*time.Millisecond, ttl/40)}
}
