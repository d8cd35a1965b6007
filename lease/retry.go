package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// The pause before a call is repeated grows from minPause to maxPause.
	minPause = 20 * time.Millisecond
	maxPause = time.Second

	// failoverTime is how long calls that do not wait for a lock are retried while
	// the service is unavailable: a few leader elections. Without it, TryAcquire,
	// Inspect and Break would return an error during every failover of the service.
	failoverTime = 5 * time.Second
)

// retry calls f until it succeeds, until again refuses its error, or until ctx
// ends, and returns the last error. began is the time of the first call, and again gets
// the time since then. This is the only retry loop of a client process: a backend tries
// once.
func (c *Client) retry(ctx context.Context, began engine.Instant, again func(err error, elapsed time.Duration) bool, f func() error) error {
	called := began
	for n := 0; ; n++ {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		now := c.clock.Now()
		if !again(err, now.Since(began)) {
			return err
		}
		if now.Since(called) > maxPause {
			n = 0 // the service had answered until now
		}
		if sleep(ctx, pause(n)) != nil {
			return err
		}
		called = c.clock.Now()
	}
}

// ask calls f, and repeats it while the service is unavailable, for failoverTime.
// f must have the same effect when it is called twice.
func (c *Client) ask(ctx context.Context, f func() error) error {
	return c.retry(ctx, c.clock.Now(), func(err error, elapsed time.Duration) bool { return transient(err) && elapsed < failoverTime }, f)
}

// transient reports whether err may pass when the service has a leader again.
func transient(err error) bool {
	var migrating *engine.MigratingError
	return !final(err) && !matches(err, ErrLost) && !errors.As(err, &migrating)
}

// sleep waits for d. If ctx ends first it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause returns the time to wait before retry n, with jitter so that clients do
// not all return at once.
func pause(n int) time.Duration {
	d := min(minPause<<min(n, 10), maxPause)
	return d/2 + rand.N(d/2)
}
