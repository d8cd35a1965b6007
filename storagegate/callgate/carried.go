package callgate

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
)

// Carried is the token that a call carries, before the resource of the call is
// known: a number or, with a verifier, a signed token.
type Carried struct {
	verifier *signature.Verifier
	values   []string
	token    fencing.Token    // without a verifier
	verified fencing.Resource // for which the signature was verified
}

// Carry reads the values that a call has under fencing.Header or
// fencing.MetadataKey. The error matches fencing.ErrInvalidToken.
func (g *Guard) Carry(values []string) (c *Carried, err error) {
	c = &Carried{verifier: g.verifier, values: values}
	if g.verifier == nil || len(values) > 1 {
		c.token, err = fencing.FromValues(values)
	}
	return c, err
}

// Missing reports whether the call carries no token.
func (c *Carried) Missing() bool {
	if c.verifier != nil {
		return len(c.values) == 0
	}
	return c.token == fencing.None
}

// forResource returns the token for a resource. With a verifier, a missing token is
// refused as well, and the error matches fencing.ErrUnsigned. The signature is verified
// once, the expiry each time.
func (c *Carried) forResource(resource fencing.Resource) (fencing.Token, error) {
	switch {
	case c.verifier == nil:
		return c.token, nil
	case len(c.values) == 0:
		return fencing.None, fmt.Errorf("%w: the call for %q carries no token; acquire the lease and send its signed token",
			signature.ErrMalformed, string(resource))
	case c.verified == resource:
		return c.verifier.Recheck(resource, c.values[0])
	}
	token, err := c.verifier.FromValues(resource, c.values)
	if err == nil {
		c.verified = resource
	}
	return token, err
}

// Option configures a Guard.
type Option func(*Guard)

// WithVerifier makes a Guard accept signed tokens only. A number, a missing token
// and a signature that the verifier refuses are refused before the call waits for
// its resource, and a signature that expires during the wait after it. WithVerifier
// panics if v is nil, because a Guard without a verifier accepts every number.
func WithVerifier(v *signature.Verifier) Option {
	if v == nil {
		panic("callgate: the verifier is nil")
	}
	return func(g *Guard) { g.verifier = v }
}

// TokenOf returns the token that a call carries for a resource, and reports a
// refused signature to the Monitor.
func (g *Guard) TokenOf(ctx context.Context, carried *Carried, resource fencing.Resource) (fencing.Token, error) {
	token, err := carried.forResource(resource)
	if err != nil {
		return fencing.None, g.Record(ctx, resource, fencing.None, err)
	}
	return token, nil
}
