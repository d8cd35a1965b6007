package clientcore

import (
	"errors"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// The pause before a call is repeated grows from minPause to maxPause.
	minPause = 20 * time.Millisecond
	maxPause = time.Second

	// FailoverTime is how long calls that do not wait for a lock are retried while
	// the service is unavailable: a few leader elections. Without it, TryAcquire,
	// Inspect and Break would return an error during every failover of the service.
	FailoverTime = 5 * time.Second
)

// Pause returns the time to wait before retry n.
func (c *Core) Pause(n int) time.Duration {
	d := min(minPause<<min(n, 10), maxPause)
	return d/2 + c.random.Jitter(d/2)
}

// Backoff is the pause between the tries of one call, which grows. The zero Backoff is ready
// to use.
type Backoff struct {
	tries int
	until engine.Instant // when the last pause ends
}

// NextPause returns the time to wait after a try that has failed now.
func (c *Core) NextPause(b *Backoff, now engine.Instant) time.Duration {
	if !b.until.IsZero() && now.Since(b.until) > maxPause {
		b.tries = 0 // the service had answered until now
	}
	pause := c.Pause(b.tries)
	b.tries++
	b.until = now.Add(pause)
	return pause
}

// Final reports whether another attempt cannot help, even for a caller that is willing to
// wait. An error that matches no sentinel is uncertain, so another attempt is worthwhile.
func Final(err error) bool {
	return engine.Refused(err) || Matches(err, fencing.ErrInvalidResource, ErrClosed, engine.ErrForbidden, engine.ErrLimit,
		engine.ErrNoState)
}

// Transient reports whether err may pass when the service has a leader again.
func Transient(err error) bool {
	var migrating *engine.MigratingError
	return !Final(err) && !Matches(err, engine.ErrLost) && !errors.As(err, &migrating)
}

// EndsLater reports whether a release or a close that has failed with err may succeed later. The only limit that it can
// reach is that of the rate, which passes.
func EndsLater(err error) bool {
	return Matches(err, engine.ErrLimit) || !Final(err) && !Matches(err, engine.ErrLost)
}

// Matches reports whether err is one of the sentinels and not uncertain.
func Matches(err error, sentinels ...error) bool {
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return !errors.Is(err, engine.ErrUncertain)
		}
	}
	return false
}
