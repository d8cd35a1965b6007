package callgate

import (
	"context"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Marks keeps the newest token of each resource. All methods may be called
// concurrently.
type Marks interface {
	// Admit applies the fencing rule and raises the mark to token. When it
	// returns nil the raised mark is as durable as these marks are; a refusal
	// is a *fencing.StaleError or *fencing.JumpError and changes nothing.
	Admit(ctx context.Context, resource fencing.Resource, token fencing.Token) error
	// Mark is the newest token admitted, None if there is none.
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
}

// Memory returns marks that live as long as the process. After a restart the
// first token of each resource passes, however old it is.
func Memory(rule fencing.Rule) Marks { return memory{fencing.NewFence(rule)} }

type memory struct{ fence *fencing.Fence }

func (m memory) Admit(_ context.Context, resource fencing.Resource, token fencing.Token) error {
	return m.fence.Admit(resource, token)
}

func (m memory) Mark(_ context.Context, resource fencing.Resource) (fencing.Token, error) {
	return m.fence.Mark(resource), nil
}

// Kept returns marks that live in the storage of gate, such as a bbolt file.
// They survive what that storage survives; its rule and its bound apply.
func Kept[Tx any](gate storagegate.Gate[Tx]) Marks { return kept[Tx]{gate} }

type kept[Tx any] struct{ gate storagegate.Gate[Tx] }

func (k kept[Tx]) Admit(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		// Nothing is to be raised, but a fenced resource must refuse.
		return k.gate.Do(ctx, resource, token, func(Tx) error { return nil })
	}
	return k.gate.Enter(ctx, resource, token)
}

func (k kept[Tx]) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	return k.gate.Mark(ctx, resource)
}
