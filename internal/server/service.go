package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// service is leased.v1.LeaseService. The JSON bridge calls the same methods.
// Errors are those of package lease; interceptors and the bridge encode them.
type service struct {
	pb.UnimplementedLeaseServiceServer
	*Server
	router     *router
	sessions   *registry
	efficiency *efficiency
}

// cleanupTime bounds the cleanup for a caller that is gone.
const cleanupTime = 5 * time.Second

// single begins the ids of sessions that were opened for one lease: they are
// closed when it is released.
var single = [4]byte{'o', 'n', 'e', 0}

func newSingleID() engine.SessionID {
	id := engine.NewSessionID()
	copy(id[:], single[:])
	return id
}

// OpenSession opens a session.
func (s *service) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	ttl, err := ttlOr(r.Ttl, engine.DefaultTTL)
	if err != nil {
		return nil, err
	}
	id := engine.NewSessionID()
	if r.SessionId != "" {
		if id, err = engine.ParseSessionID(r.SessionId); err != nil {
			return nil, err
		}
	}
	opened, err := s.sessions.open(ctx, id, ttl)
	if err != nil {
		return nil, err
	}
	return &pb.OpenSessionResponse{SessionId: id.String(), Ttl: wire.DurationText(opened.ttl)}, nil
}

func ttlOr(text string, byDefault time.Duration) (time.Duration, error) {
	ttl, err := wire.ParseDuration("ttl", text)
	if err == nil && ttl == 0 {
		ttl = byDefault
	}
	return ttl, err
}

// attachText finds the session with this id.
func (s *service) attachText(ctx context.Context, text string) (*session, error) {
	id, err := engine.ParseSessionID(text)
	if err != nil {
		return nil, err
	}
	return s.sessions.attach(ctx, id)
}

// CloseSession ends a session. One that has ended before is closed, too.
func (s *service) CloseSession(ctx context.Context, r *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	found, err := s.attachText(ctx, r.SessionId)
	if err == nil {
		err = found.Close(ctx)
	}
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return nil, err
	}
	return &pb.CloseSessionResponse{}, nil
}

// Renew extends a lease in efficiency mode, or the session of one in correctness
// mode.
func (s *service) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	var found *session
	var err error
	switch {
	case r.SessionId != "" && r.Resource == "":
		found, err = s.attachText(ctx, r.SessionId)
	case r.SessionId == "" && r.Resource != "" && r.Token != 0:
		if s.router.modeOf(fencing.Resource(r.Resource)) == engine.Efficiency {
			return s.renewEfficiency(ctx, r)
		}
		var p *engine.Party
		if p, err = s.holder(ctx, r.Resource, r.Token); err == nil {
			found, err = s.sessions.attach(ctx, p.Session)
		}
	default:
		err = fmt.Errorf("%w: renew needs sessionId, or resource and token", engine.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	failed, err := found.Renew(ctx)
	if err != nil {
		return nil, err
	}
	holds, err := found.holds(ctx)
	if err != nil {
		return nil, err
	}
	response := &pb.RenewResponse{SessionId: found.id.String(), Ttl: wire.DurationText(found.ttl)}
	for _, nonce := range failed {
		response.Failed = append(response.Failed, uint64(nonce))
		delete(holds, nonce)
	}
	for _, token := range holds {
		response.Tokens = append(response.Tokens, uint64(token))
	}
	if r.Token != 0 && !slices.Contains(response.Tokens, r.Token) {
		return nil, fmt.Errorf("renew %q: %w with token %d", r.Resource, engine.ErrNotHeld, r.Token)
	}
	return response, nil
}

// renewEfficiency extends a lease that any member has granted.
func (s *service) renewEfficiency(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	held, err := s.efficiency.find(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err == nil {
		err = s.efficiency.renew(ctx, []engine.Held{held})[0]
	}
	if err != nil {
		return nil, fmt.Errorf("renew %q: %w", r.Resource, err)
	}
	return &pb.RenewResponse{SessionId: held.Session.String(), Ttl: wire.DurationText(held.TTL), Tokens: []uint64{r.Token}}, nil
}

// holder finds the holder of a lock in correctness mode with this token.
func (s *service) holder(ctx context.Context, resource string, token uint64) (*engine.Party, error) {
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

// Release gives a lease back, and says whether there was one.
func (s *service) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	var released bool
	var err error
	switch {
	case r.Resource != "" && r.Token != 0 && s.router.modeOf(fencing.Resource(r.Resource)) == engine.Efficiency:
		released, err = s.releaseEfficiency(ctx, r)
	case r.Resource != "" && r.Token != 0:
		var p *engine.Party
		if p, err = s.holder(ctx, r.Resource, r.Token); err == nil {
			released, err = s.releaseStrict(ctx, p.Session, p.Nonce)
		}
	case r.SessionId != "" && r.Nonce != 0:
		var id engine.SessionID
		if id, err = engine.ParseSessionID(r.SessionId); err == nil {
			released, err = s.releaseStrict(ctx, id, engine.Nonce(r.Nonce))
		}
	default:
		err = fmt.Errorf("%w: release needs resource and token, or sessionId and nonce", engine.ErrInvalid)
	}
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return nil, err
	}
	return &pb.ReleaseResponse{Released: released}, nil
}

// releaseEfficiency releases a lease that any member has granted.
func (s *service) releaseEfficiency(ctx context.Context, r *pb.ReleaseRequest) (released bool, err error) {
	held, err := s.efficiency.find(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err == nil {
		err = s.efficiency.release(ctx, held)
	}
	return err == nil, err
}

// releaseStrict releases an attempt in correctness mode. One that holds nothing is
// ended too, so that a late copy of its acquire gets nothing.
func (s *service) releaseStrict(ctx context.Context, id engine.SessionID, nonce engine.Nonce) (released bool, err error) {
	found, err := s.sessions.attach(ctx, id)
	if err != nil {
		return false, err
	}
	holds, err := found.holds(ctx)
	if err != nil {
		return false, err
	}
	if err := found.Release(ctx, nonce); err != nil {
		return false, err
	}
	_, held := holds[nonce]
	if [4]byte(id[:4]) == single {
		return held, s.closeSingle(ctx, found)
	}
	return held, nil
}

// closeSingle ends the session of one lease, unless it was used for more.
func (s *service) closeSingle(ctx context.Context, found *session) error {
	requests, err := s.router.node.Session(ctx, found.id, raftstore.Stale)
	if errors.Is(err, engine.ErrNotHeld) {
		return nil
	}
	if err != nil || len(requests) > 0 {
		return err
	}
	return found.Close(ctx)
}

// Inspect returns the holders and the waiters of a lock.
func (s *service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	status, err := s.inspect(ctx, fencing.Resource(r.Resource))
	if err != nil {
		return nil, err
	}
	return &pb.InspectResponse{Lock: wire.FromStatusOf(status)}, nil
}

func (s *service) inspect(ctx context.Context, name fencing.Resource) (engine.Status, error) {
	backend, _, err := s.router.engine(name)
	if err != nil {
		return engine.Status{}, err
	}
	return backend.Inspect(ctx, name)
}

// Break takes a lease away from its holder.
func (s *service) Break(ctx context.Context, r *pb.BreakRequest) (*pb.BreakResponse, error) {
	if r.Token == 0 || r.Token > math.MaxInt64 {
		return nil, fmt.Errorf("%w: break needs the token of the lease; Inspect returns it", engine.ErrInvalid)
	}
	name := fencing.Resource(r.Resource)
	backend, _, err := s.router.engine(name)
	if err != nil {
		return nil, err
	}
	if err := backend.Break(ctx, name, fencing.Token(r.Token)); err != nil {
		return nil, err
	}
	return &pb.BreakResponse{}, nil
}
