//go:build unix

package supervise

import (
	"fmt"
	"time"
)

// MinTTL is the shortest TTL that leaves time to stop a command.
const MinTTL = time.Second

// schedule has the times of the signals, relative to the deadline of the lease.
type schedule struct {
	kill time.Duration // SIGKILL, before the deadline
	term time.Duration // SIGTERM, before the deadline
	poll time.Duration // interval between checks of the lease
}

// DefaultGrace returns the default time between SIGTERM and SIGKILL.
func DefaultGrace(ttl time.Duration) time.Duration { return ttl / 5 }

// Check reports whether a command can be stopped in time. Two thirds of the TTL are
// reserved for renewals and their retries.
func Check(ttl, grace time.Duration) error {
	switch {
	case ttl < MinTTL:
		return fmt.Errorf("ttl (%v) must be at least %v, to leave time to stop the command", ttl, MinTTL)
	case grace < 0 || grace > ttl/3:
		return fmt.Errorf("grace (%v) must be from 0 to a third of ttl (%v): the rest is needed for renewals", grace, ttl)
	}
	return nil
}

// newSchedule leaves a tenth of the TTL between SIGKILL and the deadline, for the
// kernel and a busy machine.
func newSchedule(ttl, grace time.Duration) schedule {
	kill := ttl / 10
	return schedule{kill: kill, term: kill + grace, poll: min(250*time.Millisecond, ttl/40)}
}
