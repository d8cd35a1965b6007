package callgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Guard runs calls in turn behind a fence. All methods may be called
// concurrently. Its Monitor counts and reports what it decided.
//
// Invariants:
//  1. of the calls for one resource at most one runs at a time;
//  2. a call runs only after its token was admitted in its own turn, and the
//     raised mark was stored;
//  3. a call that was not admitted never runs.
type Guard struct {
	storagegate.Monitor
	marks Marks
	turns Turns
}

// New returns a Guard over marks. Two guards must not share one Marks in a
// process: each would run its calls without regard to the other's.
func New(marks Marks) *Guard { return &Guard{marks: marks} }

// Call waits for the turn of the resource, admits token, and runs call before
// the turn ends. It returns what call returned, or why call did not run: a
// refusal, bad input, or an error matching ErrNotAdmitted. ctx bounds the wait
// and the check, not the call.
func (g *Guard) Call(ctx context.Context, resource fencing.Resource, token fencing.Token, call func() error) error {
	end, err := g.Take(ctx, resource, token)
	if err != nil {
		return err
	}
	defer end()
	return call()
}

// Take is Call in two halves, for a caller that cannot pass a function: the
// turn lasts until end is called, once.
func (g *Guard) Take(ctx context.Context, resource fencing.Resource, token fencing.Token) (end func(), err error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	end, err = g.turns.Take(ctx, resource)
	if err != nil {
		return nil, fmt.Errorf("wait for %q: %w: %w", string(resource), ErrNotAdmitted, err)
	}
	if err := g.admit(ctx, resource, token); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// Enter raises the mark to token once the call that has the turn is over. It
// always needs a token.
func (g *Guard) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		mark, err := g.Mark(ctx, resource)
		if err != nil {
			return err
		}
		return g.Record(resource, token, fencing.Rule{}.Enter(resource, mark, token))
	}
	return g.Call(ctx, resource, token, func() error { return nil })
}

// Mark is the newest token admitted for the resource, None if there is none.
func (g *Guard) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	if ctx.Err() != nil {
		return fencing.None, context.Cause(ctx)
	}
	mark, err := g.marks.Mark(ctx, resource)
	if err != nil {
		return fencing.None, fmt.Errorf("read the mark of %q: %w", string(resource), err)
	}
	return mark, nil
}

func (g *Guard) admit(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	err := g.Record(resource, token, g.marks.Admit(ctx, resource, token))
	if err == nil || Refusal(err) {
		return err
	}
	return fmt.Errorf("raise the mark of %q: %w: %w", string(resource), ErrNotAdmitted, err)
}

// Refusal reports whether err says that a call must not be tried again as it
// is: its token was refused, or it named no usable token or resource.
func Refusal(err error) bool {
	for _, target := range []error{fencing.ErrStale, fencing.ErrJump, fencing.ErrNoToken, fencing.ErrInvalidToken, fencing.ErrInvalidResource} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
