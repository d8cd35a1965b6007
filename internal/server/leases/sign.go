package leases

import (
	"context"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// Signing says how this member signs tokens.
type Signing struct {
	// Signer returns the current key, or nil if the member has none.
	Signer func() *signature.Signer
	// TTL is the time for which gates accept a signature.
	TTL time.Duration
}

// Sign signs the token of a lease that the caller holds at this moment.
func (s *Service) Sign(ctx context.Context, r *pb.SignRequest) (*pb.SignResponse, error) {
	token := fencing.Token(r.Token)
	if r.Resource == "" || !token.Valid() {
		return nil, fmt.Errorf("%w: sign needs resource and token, as the acquire returned them", engine.ErrInvalid)
	}
	name, err := routing.Ask(ctx, s.router, func() (fencing.Resource, error) {
		return s.signedName(ctx, fencing.Resource(r.Resource), token)
	})
	if err != nil {
		return nil, fmt.Errorf("sign the token of %q: %w", r.Resource, err)
	}
	signer := s.signing.Signer()
	if signer == nil { // the leader may have one, so this is not the first check
		return nil, fmt.Errorf("sign the token of %q: %w: member %s has no signing key; make one with `leased keys new` "+
			"and set signing-key-file on all members",
			r.Resource, engine.ErrUnsupported, s.router.Node.ID())
	}
	expires := s.router.Clock.Now().Time().Add(s.signing.TTL).Truncate(time.Second)
	text, err := signer.Sign(name, token, expires)
	if err != nil {
		return nil, fmt.Errorf("sign the token of %q: %w: %w", r.Resource, engine.ErrInvalid, err)
	}
	return &pb.SignResponse{SignedToken: text, Resource: string(name), KeyId: signer.KeyID(),
		Expires: expires.UTC().Format(time.RFC3339), Ttl: wire.DurationText(s.signing.TTL)}, nil
}

// signedName checks that the caller holds a lock with a token, and returns the name
// under which gates check that token.
func (s *Service) signedName(ctx context.Context, name fencing.Resource, token fencing.Token) (fencing.Resource,
	error) {
	if err := name.Validate(); err != nil {
		return "", err
	}
	if s.router.ModeOf(name) == engine.Efficiency {
		if _, err := s.findInRedis(ctx, name, token); err != nil {
			return "", err
		}
		// Redis credentials suffice to write any number to the nodes, but the service has
		// granted none above the ceiling in its log.
		if ceiling := s.router.Node.Ceiling(); token > ceiling {
			return "", fmt.Errorf("%w: the Redis nodes have token %d, and may accept none above %d; find out who wrote it, "+
				"unless this member is behind the leader",
				engine.ErrUnavailable, token, ceiling)
		}
		return name, nil
	}
	holder, err := s.holder(ctx, string(name), uint64(token))
	if err != nil {
		return "", err
	}
	if holder.Slot != 0 {
		name = name.Slot(holder.Slot)
	}
	return name, nil
}
