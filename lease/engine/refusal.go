package engine

import (
	"context"

	"github.com/leased-project/leased/fencing"
)

// RefusalReporter is implemented by a Backend whose service records the writes that
// gates refused.
type RefusalReporter interface {
	// ReportRefusal adds a refused write to the history of its lock. It changes no
	// lease. The caller needs the right to acquire the lock.
	ReportRefusal(ctx context.Context, refusal Refusal) error
}

// Refusal describes a write that a gate refused.
type Refusal struct {
	// Resource is the name of the lock.
	Resource fencing.Resource
	// Token is the token of the write, None if it had none, and Mark the mark of the
	// gate.
	Token, Mark fencing.Token
	// Gate is the kind of the gate, such as "sql".
	Gate string
	// Reason is the name of a storagegate.Outcome, such as "stale".
	Reason string
	// Holder is the name of the writer.
	Holder string
}
