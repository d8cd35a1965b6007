package perlease

import (
	"context"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Engine provides leases one by one. All methods may be called concurrently.
type Engine interface {
	// Acquire requests a lease of this TTL. The errors are those of
	// engine.Session, but none matches engine.ErrLost.
	Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, error)
	// Renew extends each lease by its TTL and returns an error for each: nil if
	// the lease was extended, one that matches engine.ErrLost if it is lost,
	// another one if it may not have been extended.
	Renew(ctx context.Context, leases []engine.Held) []error
	// Release ends a lease. A lease without a name is one that an unanswered
	// acquire of its session and nonce may have left: the engine ends what it
	// finds of it. A second Release has no effect.
	Release(ctx context.Context, held engine.Held) error
}
