package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// retry calls f until it succeeds, until again refuses its error, or until ctx
// ends, and returns the last error. began is the time of the first call, and again gets
// the time since then. Acquisitions do not use it: their loop is in acquisition.run, and
// the core decides.
func (c *Client) retry(ctx context.Context, began engine.Instant, again func(err error, elapsed time.Duration) bool,
	f func() error) error {
	var backoff clientcore.Backoff
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		now := c.clock.Now()
		if !again(err, now.Since(began)) || engine.Sleep(ctx, c.core.NextPause(&backoff, now)) != nil {
			return err
		}
	}
}

// ask calls f, and repeats it while the service is unavailable, for clientcore.FailoverTime.
// f must have the same effect when it is called twice. Its context ends with Close, too.
func (c *Client) ask(ctx context.Context, f func(ctx context.Context) error) error {
	return c.askWhile(ctx, clientcore.Transient, f)
}

// askWhile is ask for a call that is repeated only after errors that again accepts.
func (c *Client) askWhile(ctx context.Context, again func(error) bool, f func(ctx context.Context) error) error {
	var asking call
	ctx, err := c.enter(ctx, &asking)
	if err != nil {
		return err
	}
	defer c.leave(&asking)
	err = c.retry(ctx, c.clock.Now(), func(err error, elapsed time.Duration) bool {
		return again(err) && elapsed < clientcore.FailoverTime
	}, func() error { return f(ctx) })
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrClosed) && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
