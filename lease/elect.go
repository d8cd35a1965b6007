package lease

import (
	"context"
	"errors"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Leader is who leads an election. The zero Leader is nobody.
type Leader struct {
	Holder   string
	Token    fencing.Token
	Metadata map[string]string
}

// Elect campaigns for a resource and calls lead each time it is won. The
// context given to lead ends when ctx does or the leadership is lost. When lead
// returns nil, or after a loss, Elect steps down, pauses for a moment and
// campaigns again, behind those who already wait. It returns when ctx ends, when
// lead returns an error of its own, or when campaigning makes no sense, such as
// in the wrong mode. After a loss an error of lead that says no more than that,
// a context's end, ErrLost or a stale token, is not taken for its own.
//
// A leader that was paused does not know yet that it leads no more: everything
// it writes must carry the lease's token to a gate.
func (c *Client) Elect(ctx context.Context, resource fencing.Resource, lead func(context.Context, *Lease) error, options ...AcquireOption) error {
	for {
		l, err := c.Acquire(ctx, resource, options...)
		if err != nil {
			return err
		}
		err, lost := under(ctx, l, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !(lost != nil && aboutTheLoss(err)):
			return errors.Join(err, lost)
		}
		if sleep(ctx, pause(0)) != nil {
			return context.Cause(ctx)
		}
	}
}

// aboutTheLoss reports whether a leader that was deposed says no more than that.
func aboutTheLoss(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, engine.ErrLost) || errors.Is(err, fencing.ErrStale)
}

// Observe tells who leads: at once, and again after each change, until ctx or
// the Client ends. While the service is out of reach it tells nothing and goes
// on trying. Between a loss and the next election it tells the zero Leader,
// unless the change was too quick to be seen.
func (c *Client) Observe(ctx context.Context, resource fencing.Resource, leads func(Leader)) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	if !c.enter() {
		return ErrClosed
	}
	defer c.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()

	var last Leader
	first := true
	for n := 0; ; n++ {
		err := c.backend.Watch(ctx, resource, func(s engine.Status) {
			var now Leader
			if len(s.Holders) > 0 {
				now = Leader{Holder: s.Holders[0].Holder, Token: s.Holders[0].Token, Metadata: s.Holders[0].Metadata}
			}
			n = 0
			if first || now.Token != last.Token {
				first, last = false, now
				leads(now)
			}
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case sleep(ctx, pause(n)) != nil:
			return context.Cause(ctx)
		}
	}
}
