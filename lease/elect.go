package lease

import (
	"context"
	"errors"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// Leader is the leader of an election. The zero Leader means that there is none. A
// service with users shows the Token only to its owner and to users who may break the
// lock.
type Leader struct {
	Holder   string
	Token    fencing.Token
	Metadata map[string]string
}

// Elect campaigns for a resource and calls lead each time it wins. The context of
// lead ends when ctx ends or the leadership is lost. After a loss, or when lead
// returns nil, Elect steps down, pauses for a moment and campaigns again, behind the
// candidates that already wait. It returns when ctx ends, when lead returns an
// error, or when Acquire cannot succeed, for example because the lock has another
// mode; once it has led, a limit does not end it. After a loss it ignores an error of
// lead that only reports the loss: the end of a context, ErrLost or a stale token.
//
// A leader that was paused does not know that it was replaced: every write must
// carry the lease's token to a gate.
func (c *Client) Elect(ctx context.Context, resource fencing.Resource, lead func(context.Context, *Lease) error,
	options ...AcquireOption) error {
	for led := false; ; led = true {
		l, leadCtx, err := c.acquire(ctx, resource, false, options)
		for led && clientcore.Matches(err, ErrLimit) { // after an outage, all former leaders may exceed the rate
			if engine.Sleep(ctx, c.core.Pause(10)) != nil {
				return context.Cause(ctx)
			}
			l, leadCtx, err = c.acquire(ctx, resource, false, options)
		}
		if err != nil {
			return err
		}
		err, lost := runUnder(leadCtx, l, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !(lost != nil && reportsLoss(err)):
			return errors.Join(err, lost)
		}
		if engine.Sleep(ctx, c.core.Pause(0)) != nil {
			return context.Cause(ctx)
		}
	}
}

// reportsLoss reports whether the error of a deposed leader only says that it was
// deposed.
func reportsLoss(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) || errors.Is(err, fencing.ErrStale)
}

// Observe calls changed with the current leader, and again after each change, until
// ctx ends or the Client is closed. While the service is unavailable it keeps
// trying. Between a loss and the next election it reports the zero Leader, unless
// the change was too quick to be seen.
func (c *Client) Observe(ctx context.Context, resource fencing.Resource, changed func(Leader)) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	var call call
	ctx, err := c.enter(ctx, &call)
	if err != nil {
		return err
	}
	defer c.leave(&call)

	var last Leader
	var lastSince time.Time
	first := true
	again := func(err error, _ time.Duration) bool { // after a failover, all observers of a user may exceed its rate
		return !clientcore.Final(err) || !first && clientcore.Matches(err, ErrLimit)
	}
	err = c.retry(ctx, c.clock.Now(), again, func() error {
		return c.backend.Watch(ctx, resource, func(s Status) {
			var now Leader
			var since time.Time
			if len(s.Holders) > 0 {
				h := s.Holders[0]
				now = Leader{Holder: h.Holder, Token: h.Token, Metadata: h.Metadata}
				if h.Token == fencing.None { // a user without the right to see it
					since = h.Since
				}
			}
			same := now.Token == last.Token && now.Holder == last.Holder && since.Equal(lastSince)
			if first || !same {
				first, last, lastSince = false, now, since
				changed(now)
			}
		})
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
