package callgate

import (
	"context"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Marks stores the newest token of each resource. All methods are safe for
// concurrent use.
type Marks interface {
	// Admit applies the fencing rule and raises the mark to token. If it returns
	// nil, the raised mark is stored. A refusal is a *fencing.StaleError or
	// *fencing.JumpError and changes nothing.
	Admit(ctx context.Context, resource fencing.Resource, token fencing.Token) error
	// Mark returns the newest token admitted, or None.
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
}

// Memory returns marks in memory. After a restart the first token of each
// resource is admitted, however old it is.
func Memory(rule fencing.Rule) Marks { return memory{fencing.NewFence(rule)} }

type memory struct{ fence *fencing.Fence }

func (m memory) Admit(_ context.Context, resource fencing.Resource, token fencing.Token) error {
	return m.fence.Admit(resource, token)
}

func (m memory) Mark(_ context.Context, resource fencing.Resource) (fencing.Token, error) {
	return m.fence.Mark(resource), nil
}

// Stored returns marks in the storage of gate, such as a bbolt file. They are as
// durable as that storage. The rule of gate applies.
func Stored[Tx any](gate storagegate.Gate[Tx]) Marks { return stored[Tx]{gate} }

type stored[Tx any] struct{ gate storagegate.Gate[Tx] }

func (s stored[Tx]) Admit(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		// There is no mark to raise, but a fenced resource must refuse.
		return s.gate.Do(ctx, resource, token, func(Tx) error { return nil })
	}
	return s.gate.Enter(ctx, resource, token)
}

func (s stored[Tx]) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	return s.gate.Mark(ctx, resource)
}
