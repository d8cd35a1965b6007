package perlease

import (
	"context"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Engine provides leases one by one. All methods may be called concurrently.
type Engine interface {
	// Acquire asks for a lease of this TTL. The errors are those of
	// engine.Session, but none matches engine.ErrLost.
	Acquire(ctx context.Context, session engine.SessionID, ttl time.Duration, request engine.Request) (engine.Held, error)
	// Renew extends leases, each by its TTL, and returns an error for each: nil
	// if it was extended, one that matches engine.ErrLost if it is lost, another
	// one if it is not known to be extended.
	Renew(ctx context.Context, leases []engine.Held) []error
	// Release ends a lease. One without a name is what an unanswered acquire of
	// its session and nonce may have left behind: the engine ends what it can
	// find of it. Released twice, it is a no-op.
	Release(ctx context.Context, held engine.Held) error
}
