package callgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate"
)

// Guard runs the calls for each resource one at a time behind a fence. All
// methods are safe for concurrent use. Its Monitor counts and reports decisions.
//
// Invariants:
//  1. at most one call for a resource runs at a time;
//  2. a call runs only after its token was admitted while it held the resource,
//     and the raised mark was stored;
//  3. a call that was not admitted never runs.
type Guard struct {
	storagegate.Monitor
	marks    Marks
	mutex    resourceMutex
	verifier *signature.Verifier // nil if tokens are numbers
}

// New returns a Guard over marks. Two guards in one process must not share a
// Marks, because they do not serialize their calls with each other.
func New(marks Marks, options ...Option) *Guard {
	g := &Guard{marks: marks}
	for _, option := range options {
		option(g)
	}
	return g
}

// Call waits for the resource, admits token, and runs call while it holds the
// resource. It returns the result of call. If call did not run, the error is a
// refusal, says that the input is invalid, or matches ErrNotAdmitted. ctx limits
// the wait and the check, not the call.
func (g *Guard) Call(ctx context.Context, resource fencing.Resource, token fencing.Token, call func() error) error {
	end, err := g.Begin(ctx, resource, token)
	if err != nil {
		return err
	}
	defer end()
	return call()
}

// Begin is the first half of Call, for callers that cannot pass a function. The
// call holds the resource until end is called. Call end once.
func (g *Guard) Begin(ctx context.Context, resource fencing.Resource, token fencing.Token) (end func(), err error) {
	return g.begin(ctx, resource, func() (fencing.Token, error) { return token, nil })
}

// BeginCarried is Begin for the token that a call carries. A signed token is verified
// before the wait, so that made-up tokens make nobody wait, and checked again after it.
func (g *Guard) BeginCarried(
	ctx context.Context, resource fencing.Resource, carried *Carried,
) (end func(), err error) {
	if _, err := g.TokenOf(ctx, carried, resource); err != nil {
		return nil, err
	}
	return g.begin(ctx, resource, func() (fencing.Token, error) { return g.TokenOf(ctx, carried, resource) })
}

// begin waits for the resource, asks for the token and admits it.
func (g *Guard) begin(
	ctx context.Context, resource fencing.Resource, tokenOf func() (fencing.Token, error),
) (end func(), err error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	unlock, err := g.mutex.Lock(ctx, resource)
	if err != nil {
		return nil, fmt.Errorf("wait for %q: %w: %w", string(resource), ErrNotAdmitted, err)
	}
	token, err := tokenOf()
	if err == nil {
		err = g.admit(ctx, resource, token)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// BeginNamed is Begin for a call with these values under fencing.Header or
// fencing.MetadataKey, whose resource is named by a function. A call for which the
// function returns ErrUngated begins at once.
func (g *Guard) BeginNamed(
	ctx context.Context, values []string, name func() (fencing.Resource, error),
) (end func(), err error) {
	carried, err := g.Carry(values)
	if err != nil {
		return nil, err
	}
	resource, err := Named(name())
	switch {
	case errors.Is(err, ErrUngated):
		return func() {}, nil
	case err != nil:
		return nil, err
	}
	return g.BeginCarried(ctx, resource, carried)
}

// Enter waits for the call that holds the resource and raises the mark to token.
// None is always refused.
func (g *Guard) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		return storagegate.RefuseTokenless(ctx, g, resource)
	}
	return g.Call(ctx, resource, token, func() error { return nil })
}

// Mark returns the newest token admitted for the resource, or None.
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
	err := g.Record(ctx, resource, token, g.marks.Admit(ctx, resource, token))
	if err == nil || Refusal(err) {
		return err
	}
	return fmt.Errorf("raise the mark of %q: %w: %w", string(resource), ErrNotAdmitted, err)
}
