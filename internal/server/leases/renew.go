package leases

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// Renew extends a lease in efficiency mode, or the session of a lease in
// correctness mode.
func (s *Service) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	var id engine.SessionID
	var err error
	switch {
	case r.SessionId != "" && r.Resource == "":
		id, err = engine.ParseSessionID(r.SessionId)
	case r.SessionId == "" && r.Resource != "" && r.Token != 0:
		if s.router.ModeOf(fencing.Resource(r.Resource)) == engine.Efficiency {
			return s.renewInRedis(ctx, r)
		}
		var holder *engine.Party
		if holder, err = s.holder(ctx, r.Resource, r.Token); err == nil {
			id = holder.Session
		}
	default:
		err = fmt.Errorf("%w: renew needs either sessionId, or resource and token", engine.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return s.renewSession(ctx, id, r)
}

func (s *Service) renewSession(ctx context.Context, id engine.SessionID, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	found, err := s.sessions.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	failed, err := found.renew(ctx)
	if err != nil {
		return nil, err
	}
	tokens, err := found.tokens(ctx)
	if err != nil {
		return nil, err
	}
	response := &pb.RenewResponse{SessionId: found.id.String(), Ttl: wire.DurationText(found.ttl)}
	for _, nonce := range failed {
		response.Failed = append(response.Failed, uint64(nonce))
		delete(tokens, nonce)
	}
	for _, token := range tokens {
		response.Tokens = append(response.Tokens, uint64(token))
	}
	if r.Token != 0 && !slices.Contains(response.Tokens, r.Token) {
		return nil, fmt.Errorf("renew %q: %w with token %d", r.Resource, engine.ErrNotHeld, r.Token)
	}
	return response, nil
}

// renewInRedis extends a lease that any member has granted.
func (s *Service) renewInRedis(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	held, err := s.redis.find(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err == nil {
		err = s.redis.renew(ctx, []engine.Held{held})[0]
	}
	if err != nil {
		return nil, fmt.Errorf("renew %q: %w", r.Resource, err)
	}
	return &pb.RenewResponse{SessionId: held.Session.String(), Ttl: wire.DurationText(held.TTL), Tokens: []uint64{r.Token}}, nil
}

// holder returns the holder of a lock in correctness mode with this token.
func (s *Service) holder(ctx context.Context, resource string, token uint64) (*engine.Party, error) {
	status, err := s.inspect(ctx, fencing.Resource(resource))
	if err != nil {
		return nil, err
	}
	for i := range status.Holders {
		if p := &status.Holders[i]; uint64(p.Token) == token {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%q: %w with token %d", resource, engine.ErrNotHeld, token)
}
