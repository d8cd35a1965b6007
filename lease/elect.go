package lease

import (
	"context"
	"errors"

	"github.com/leased-project/leased/fencing"
)

// Leader is who leads an election. The zero Leader is nobody.
type Leader struct {
	Holder   string
	Token    fencing.Token
	Metadata map[string]string
}

// Elect campaigns for a resource and calls lead each time it is won. The
// context given to lead ends when ctx does or the leadership is lost. When lead
// returns nil, or after a loss, Elect steps down and campaigns again, behind
// those who already wait. It returns when ctx ends, when lead returns an error
// of its own, or when campaigning makes no sense, such as in the wrong mode.
//
// A leader that was paused does not know yet that it leads no more: everything
// it writes must carry the lease's token to a gate.
func (c *Client) Elect(ctx context.Context, resource fencing.Resource, lead func(context.Context, *Lease) error, options ...AcquireOption) error {
	for {
		l, err := c.Acquire(ctx, resource, options...)
		if err != nil {
			return err
		}
		err = under(ctx, l, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, ErrLost):
			return err
		}
	}
}

// Observe tells who leads: at once, and again after each change, until ctx
// ends. Between a loss and the next election it tells the zero Leader, unless
// the change was too quick to be seen.
func (c *Client) Observe(ctx context.Context, resource fencing.Resource, leads func(Leader)) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	var last Leader
	first := true
	return c.backend.Watch(ctx, resource, func(s Status) {
		var now Leader
		if len(s.Holders) > 0 {
			now = Leader{Holder: s.Holders[0].Holder, Token: s.Holders[0].Token, Metadata: s.Holders[0].Metadata}
		}
		if !first && now.Token == last.Token {
			return
		}
		first, last = false, now
		leads(now)
	})
}
