package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/storagegate"
)

// BoundGate is a gate bound to a lease: every write carries the lease's token and the
// name of a resource that the lease covers. All methods may be called concurrently.
type BoundGate[Tx any] struct {
	lease    *Lease
	gate     storagegate.Gate[Tx]
	resource fencing.Resource
}

// Gate binds a gate to a lease, under the lease's GateResource. It is a function because
// a method cannot have the type parameter of the gate.
func Gate[Tx any](l *Lease, gate storagegate.Gate[Tx]) *BoundGate[Tx] {
	return &BoundGate[Tx]{lease: l, gate: gate, resource: l.grant.named}
}

// For returns the gate for another resource of a set.
func (b *BoundGate[Tx]) For(resource fencing.Resource) *BoundGate[Tx] {
	return &BoundGate[Tx]{lease: b.lease, gate: b.gate, resource: resource}
}

// Enter raises the mark of the resource to the lease's token, so the gate refuses every
// earlier holder from now on. Call it before reading the data that Do changes.
//
// Enter and Do return ErrInvalid if the lease does not cover the resource, and what
// Lease.Err returns if the lease has ended: ErrReleased, ErrClosed, or an error that
// matches ErrLost, such as ErrExpired. The storage is not called then. This only
// saves a request: the gate decides, and its errors are those of storagegate.Gate.
func (b *BoundGate[Tx]) Enter(ctx context.Context) error {
	name, err := b.name()
	if err != nil {
		return err
	}
	return b.gate.Enter(ctx, name, b.lease.Token())
}

// Do admits the lease's token and runs write in one atomic step of the storage. The
// errors are those of Enter.
func (b *BoundGate[Tx]) Do(ctx context.Context, write func(tx Tx) error) error {
	name, err := b.name()
	if err != nil {
		return err
	}
	return b.gate.Do(ctx, name, b.lease.Token(), write)
}

// name returns the name of the resource at the gate.
func (b *BoundGate[Tx]) name() (fencing.Resource, error) {
	if !slices.Contains(b.lease.grant.Held.Resources, b.resource) {
		return "", fmt.Errorf("write to %q: %w: the lease covers %q", string(b.resource), engine.ErrInvalid,
			b.lease.grant.Held.Resources)
	}
	if err := b.lease.Err(); err != nil {
		return "", fmt.Errorf("write to %q: %w", string(b.resource), err)
	}
	return b.lease.gateName(b.resource), nil
}
