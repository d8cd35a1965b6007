package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// Renew extends a lease in efficiency mode, or the session of a lease in
// correctness mode.
func (s *Service) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	return routing.Ask(ctx, s.router, func() (*pb.RenewResponse, error) { return s.renew(ctx, r) })
}

func (s *Service) renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	held := engine.Held{Metadata: r.Metadata}
	var err error
	if held.TTL, err = wire.ParsePositive("ttl", r.Ttl); err != nil {
		return nil, err
	}
	var id engine.SessionID
	switch {
	case r.SessionId != "" && r.Resource == "" && len(r.Metadata) > 0:
		err = fmt.Errorf("%w: metadata belongs to one lease; name it by resource and token", engine.ErrInvalid)
	case r.SessionId != "" && r.Resource == "":
		id, err = engine.ParseSessionID(r.SessionId)
	case r.SessionId == "" && r.Resource != "" && r.Token != 0:
		if s.router.ModeOf(fencing.Resource(r.Resource)) == engine.Efficiency {
			return s.renewInRedis(ctx, r, held)
		}
		var holder *engine.Party
		if holder, err = s.holder(ctx, r.Resource, r.Token); err != nil {
			s.metrics.Renewed(engine.Correctness, err)
			return nil, err
		}
		id, held.Nonce = holder.Session, holder.Nonce
	default:
		err = fmt.Errorf("%w: renew needs either sessionId, or resource and token", engine.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return s.renewSession(ctx, id, r, held)
}

// renewSession extends a session. With a TTL or metadata in held it changes them.
func (s *Service) renewSession(ctx context.Context, id engine.SessionID, r *pb.RenewRequest,
	held engine.Held) (*pb.RenewResponse, error) {
	now, shorter := s.router.Clock.Now(), held.TTL
	if shorter < s.limits.TTLMin { // update checks it
		shorter = 0
	}
	found, err := s.attachFor(ctx, id, shorter, nil)
	ttl := time.Duration(0)
	if err == nil {
		ttl = cmp.Or(held.TTL, found.TTL())
	}
	if err == nil && (held.TTL != 0 || len(held.Metadata) > 0) {
		held.TTL = ttl
		err = s.update(ctx, found, held)
	}
	s.metrics.Renewed(engine.Correctness, err)
	if err != nil {
		return nil, err
	}
	holds, err := found.Holds()
	if err != nil {
		return nil, err
	}
	response := &pb.RenewResponse{SessionId: found.ID().String(), Ttl: wire.DurationText(ttl), Expires: expires(now, ttl)}
	for _, h := range holds {
		response.Tokens = append(response.Tokens, uint64(h.Token))
	}
	if r.Token != 0 && !slices.Contains(response.Tokens, r.Token) {
		return nil, fmt.Errorf("renew %q: %w with token %d", r.Resource, engine.ErrNotHeld, r.Token)
	}
	return response, nil
}

// update renews a session for the TTL of one of its leases, and sets the metadata of the lease.
func (s *Service) update(ctx context.Context, found *raftstore.Session, held engine.Held) error {
	if err := s.checkChange(&held, &engine.Held{TTL: found.TTL()}); err != nil {
		return err
	}
	return found.Update(ctx, held)
}

// expires returns, for display, when a lease ends that was extended by ttl at an instant.
func expires(at engine.Instant, ttl time.Duration) string {
	return at.Time().Add(ttl).UTC().Format(time.RFC3339Nano)
}

// renewInRedis extends a lease that any member has granted, with the TTL and metadata of change
// unless they are empty.
func (s *Service) renewInRedis(ctx context.Context, r *pb.RenewRequest, change engine.Held) (*pb.RenewResponse, error) {
	now := s.router.Clock.Now()
	held, err := s.findInRedis(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err == nil && (change.TTL != 0 || len(change.Metadata) > 0) {
		before := held
		held.TTL = cmp.Or(change.TTL, held.TTL)
		if len(change.Metadata) > 0 {
			held.Metadata = change.Metadata
		}
		if err := errors.Join(s.checkChange(&held, &before), engine.ValidateMetadata(held.Metadata)); err != nil {
			return nil, err
		}
	}
	if err == nil {
		err = s.redis.renew(ctx, []engine.Held{held})[0]
		s.redis.renewed(err)
	} else {
		s.metrics.Renewed(engine.Efficiency, err)
	}
	if err != nil {
		return nil, fmt.Errorf("renew %q: %w", r.Resource, err)
	}
	return &pb.RenewResponse{SessionId: held.Session.String(), Ttl: wire.DurationText(held.TTL),
		Tokens: []uint64{r.Token}, Expires: expires(now, held.TTL)}, nil
}

// findInRedis is redisLeases.find for a caller that names its lease by resource and token, and not by its mode.
func (s *Service) findInRedis(ctx context.Context, name fencing.Resource, token fencing.Token) (engine.Held, error) {
	held, err := s.redis.find(ctx, name, token)
	return held, s.sureNotHeld(ctx, name, err)
}

// sureNotHeld returns the error of a read of the Redis nodes, or another one if the error says that a lease is not held
// and the lock may be in correctness mode, where the lease may be held.
func (s *Service) sureNotHeld(ctx context.Context, name fencing.Resource, err error) error {
	if !errors.Is(err, engine.ErrNotHeld) {
		return err
	}
	return cmp.Or(s.router.CheckEfficiency(ctx, name), err)
}

// holder returns the holder of a lock in correctness mode with this token. The lease of
// another user counts as not held, so that nobody can find out tokens by trying.
func (s *Service) holder(ctx context.Context, resource string, token uint64) (*engine.Party, error) {
	status, err := s.inspect(ctx, fencing.Resource(resource))
	if err != nil {
		return nil, err
	}
	if found := ownHolder(ctx, &status, token); found != nil {
		return found, nil
	}
	return nil, notHeld(ctx, resource, token)
}

// holderToRelease is holder for a caller that ends the lease. It commits nothing if this member has applied the grant:
// a token belongs to one attempt forever, so an old state names the right one, and the release itself is committed.
func (s *Service) holderToRelease(ctx context.Context, resource string, token uint64) (*engine.Party, error) {
	applied, err := s.router.Node.Inspect(ctx, fencing.Resource(resource), raftstore.Stale)
	if err != nil {
		return nil, err
	}
	if found := ownHolder(ctx, &applied, token); found != nil {
		return found, nil
	}
	return s.holder(ctx, resource, token)
}

// ownHolder returns the holder with a token, nil if there is none or it belongs to another user.
func ownHolder(ctx context.Context, status *engine.Status, token uint64) *engine.Party {
	for i := range status.Holders {
		if p := &status.Holders[i]; uint64(p.Token) == token && auth.Owns(ctx, p.User) {
			return p
		}
	}
	return nil
}

// notHeld returns the error for a lease that the caller does not hold.
func notHeld(ctx context.Context, resource string, token uint64) error {
	by := ""
	if user := auth.UserName(ctx); user != "" {
		by = " by user " + user
	}
	return fmt.Errorf("%q: %w with token %d%s", resource, engine.ErrNotHeld, token, by)
}

// Release ends a lease, and reports whether the lease was held.
func (s *Service) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	released, err := routing.Ask(ctx, s.router, func() (bool, error) { return s.release(ctx, r) })
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return nil, err
	}
	return &pb.ReleaseResponse{Released: released}, nil
}

func (s *Service) release(ctx context.Context, r *pb.ReleaseRequest) (released bool, err error) {
	switch {
	case r.Resource != "" && r.Token != 0 && s.router.ModeOf(fencing.Resource(r.Resource)) == engine.Efficiency:
		released, err = s.releaseInRedis(ctx, r)
	case r.Resource != "" && r.Token != 0:
		var holder *engine.Party
		if holder, err = s.holderToRelease(ctx, r.Resource, r.Token); err == nil {
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
	return released, err
}

// releaseInRedis releases a lease that any member has granted.
func (s *Service) releaseInRedis(ctx context.Context, r *pb.ReleaseRequest) (released bool, err error) {
	held, err := s.findInRedis(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err == nil {
		err = s.redis.release(ctx, held)
	}
	return err == nil, err
}

// releaseInRaft ends an attempt in correctness mode. It also ends an attempt that
// holds nothing, so that a late copy of its acquire is not granted.
func (s *Service) releaseInRaft(ctx context.Context, id engine.SessionID, nonce engine.Nonce) (released bool,
	err error) {
	found, err := s.attach(ctx, id, nil)
	if err != nil {
		return false, err
	}
	attempt, err := found.Attempt(nonce)
	if err != nil {
		return false, err
	}
	if hasMark(id, singleMark) && s.isLast(ctx, id, attempt) {
		err = found.Close(ctx) // ends the attempt as well
	} else {
		err = found.Release(ctx, engine.Held{Nonce: nonce})
	}
	return err == nil && attempt.Code == machine.Granted, err
}

// isLast reports whether an attempt is the only request of its session. A session that was opened for one lease may
// have others by now: the caller knows its ID.
func (s *Service) isLast(ctx context.Context, id engine.SessionID, attempt machine.Result) bool {
	requests, err := s.router.Node.Requests(ctx, id, raftstore.Stale)
	if attempt.Code != machine.Ended {
		requests--
	}
	return err == nil && requests <= 0
}
