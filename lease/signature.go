package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// signature is a signed token of a grant.
type signature struct {
	engine.SignedToken
	sent  engine.Instant // before it was requested
	askAt engine.Instant // when to ask for the next one
}

// retryShare is the share of a signature's TTL to wait between an unanswered request
// and the next, so that an outage of the service does not delay every write.
const retryShare = 16

// SignedToken returns the token with a signature of the service, for gates that
// have a signature.Verifier, under the name of GateResource. The text
// expires: call SignedToken before each write instead of keeping its result. It asks
// the service when less than half of the time is left, and returns the cached text
// otherwise. The error is ErrUnsupported if the service has no signing key.
func (l *Lease) SignedToken(ctx context.Context) (string, error) {
	return l.SignedTokenFor(ctx, l.grant.named)
}

// SignedTokenFor is SignedToken for one of the names of a set.
func (l *Lease) SignedTokenFor(ctx context.Context, resource fencing.Resource) (string, error) {
	if err := l.Err(); err != nil {
		return "", fmt.Errorf("sign the token of %q: %w", string(resource), err)
	}
	c, signatures := l.grant.keepAlive.client, &l.grant.signatures
	now := c.clock.Now()
	found, ok := signatures.Load(resource)
	cached, _ := found.(signature)
	if ok && now.Until(cached.askAt) > 0 {
		return cached.Text, nil
	}
	signer, can := c.backend.(engine.Signer)
	if !can {
		return "", fmt.Errorf("sign the token of %q: %w: only a service with a signing key signs tokens", string(resource),
			engine.ErrUnsupported)
	}
	fresh := signature{sent: now}
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		fresh.SignedToken, err = signer.Sign(ctx, resource, l.Token())
		return err
	})
	switch now := c.clock.Now(); {
	case err == nil:
		fresh.askAt = fresh.sent.Add(fresh.TTL / 2)
		signatures.Store(resource, fresh)
		return fresh.Text, nil
	case ok && (unanswered(err) || clientcore.Matches(err, ErrLimit)) && now.Since(cached.sent) < cached.TTL:
		cached.askAt = now.Add(cached.TTL / retryShare)
		signatures.Store(resource, cached)
		return cached.Text, nil
	}
	return "", err
}

// unanswered reports whether err says nothing about the lease.
func unanswered(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain)
}
