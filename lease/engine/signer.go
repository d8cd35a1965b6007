package engine

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Signer is implemented by a Backend whose service signs tokens.
type Signer interface {
	// Sign returns the signed token of a lease that the caller holds. resource is one
	// of the lease's locks. For a permit the signature is for the name of its slot. The
	// error is ErrNotHeld if the lease has ended, and ErrUnsupported if the service has
	// no signing key.
	Sign(ctx context.Context, resource fencing.Resource, token fencing.Token) (SignedToken, error)
}

// SignedToken is a token with a signature that signature.Verifier checks.
type SignedToken struct {
	Text string
	// TTL is the time for which gates accept the signature, from when it was made.
	TTL time.Duration
}
