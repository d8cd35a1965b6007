package leases

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// Release ends a lease, and reports whether the lease was held.
func (s *Service) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	var released bool
	var err error
	switch {
	case r.Resource != "" && r.Token != 0 && s.router.ModeOf(fencing.Resource(r.Resource)) == engine.Efficiency:
		released, err = s.releaseInRedis(ctx, r)
	case r.Resource != "" && r.Token != 0:
		var holder *engine.Party
		if holder, err = s.holder(ctx, r.Resource, r.Token); err == nil {
			released, err = s.releaseInRaft(ctx, holder.Session, holder.Nonce)
		}
	case r.SessionId != "" && r.Nonce != 0:
		var id engine.SessionID
		if id, err = engine.ParseSessionID(r.SessionId); err == nil {
			released, err = s.releaseInRaft(ctx, id, engine.Nonce(r.Nonce))
		}
	default:
		err = fmt.Errorf("%w: release needs either resource and token, or sessionId and nonce", engine.ErrInvalid)
	}
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return nil, err
	}
	return &pb.ReleaseResponse{Released: released}, nil
}

// releaseInRedis releases a lease that any member has granted.
func (s *Service) releaseInRedis(ctx context.Context, r *pb.ReleaseRequest) (released bool, err error) {
	held, err := s.redis.find(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err == nil {
		err = s.redis.release(ctx, held)
	}
	return err == nil, err
}

// releaseInRaft ends an attempt in correctness mode. It also ends an attempt that
// holds nothing, so that a late copy of its acquire is not granted.
func (s *Service) releaseInRaft(ctx context.Context, id engine.SessionID, nonce engine.Nonce) (released bool, err error) {
	found, err := s.sessions.attach(ctx, id)
	if err != nil {
		return false, err
	}
	tokens, err := found.tokens(ctx)
	if err != nil {
		return false, err
	}
	if err := found.raft.Release(ctx, nonce); err != nil {
		return false, err
	}
	_, held := tokens[nonce]
	if hasMark(id, singleMark) {
		return held, s.closeUnused(ctx, found)
	}
	return held, nil
}

// closeUnused closes a session that was opened for one lease, unless the caller
// has used it for others.
func (s *Service) closeUnused(ctx context.Context, found *session) error {
	requests, err := s.router.Node.Session(ctx, found.id, raftstore.Stale)
	if errors.Is(err, engine.ErrNotHeld) {
		return nil
	}
	if err != nil || len(requests) > 0 {
		return err
	}
	return found.close(ctx)
}
