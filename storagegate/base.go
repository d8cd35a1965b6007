package storagegate

import (
	"context"

	"github.com/leased-project/leased/fencing"
)

// Steps are what a gate does in its storage. Resources and tokens that they get are
// valid. All steps are safe for concurrent use.
type Steps[Tx any] struct {
	// Write applies the fencing rule to the mark, runs write, and stores the raised
	// mark and the effects of write, in one atomic step. Without a write it only
	// raises the mark.
	Write func(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error
	// Lower replaces the mark by to if it is expected, in one atomic step, and
	// returns the error of CompareMark otherwise.
	Lower func(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error
	// Mark returns the newest token admitted for the resource, or None.
	Mark func(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
}

// Base makes a gate of the steps of a storage. It validates the arguments, refuses
// to enter without a token, and reports the decisions to its Monitor. The gate of a
// storage embeds it.
type Base[Tx any] struct {
	Monitor
	steps Steps[Tx]
}

var (
	_ Gate[int] = (*Base[int])(nil)
	_ Resetter  = (*Base[int])(nil)
)

// NewBase returns the Base of a gate.
func NewBase[Tx any](steps Steps[Tx]) *Base[Tx] { return &Base[Tx]{steps: steps} }

// Do implements Gate.
func (b *Base[Tx]) Do(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error,
) error {
	if err := Validate(resource, token); err != nil {
		return err
	}
	return b.Record(ctx, resource, token, b.steps.Write(ctx, resource, token, write))
}

// Enter implements Gate.
func (b *Base[Tx]) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		return RefuseTokenless(ctx, b, resource)
	}
	return b.Do(ctx, resource, token, nil)
}

// Mark implements Gate.
func (b *Base[Tx]) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	if ctx.Err() != nil {
		return fencing.None, context.Cause(ctx)
	}
	return b.steps.Mark(ctx, resource)
}

// Reset implements Resetter.
func (b *Base[Tx]) Reset(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if err := ValidateReset(resource, expected, to); err != nil {
		return err
	}
	return b.steps.Lower(ctx, resource, expected, to)
}
