package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// service is leased.v1.LeaseService. The JSON bridge calls the same methods.
// Errors are those of package lease; the rim turns them into what the wire needs.
type service struct {
	pb.UnimplementedLeaseServiceServer
	*Server
	router   *router
	sessions *registry
	book     *book
	reasons  *reasons
}

// cleanupTime bounds what is still to be done for a caller that has gone.
const cleanupTime = 5 * time.Second

// single begins the ids of sessions that were opened for one lease: they are
// closed when it is released.
var single = [4]byte{'o', 'n', 'e', 0}

func newSingleID() lease.SessionID {
	id := lease.NewSessionID()
	copy(id[:], single[:])
	return id
}

// OpenSession begins a session.
func (s *service) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	ttl, err := ttlOr(r.Ttl, lease.DefaultTTL)
	if err != nil {
		return nil, err
	}
	id := lease.NewSessionID()
	if r.SessionId != "" {
		if id, err = lease.ParseSessionID(r.SessionId); err != nil {
			return nil, err
		}
	}
	e, err := s.sessions.open(ctx, id, ttl)
	if err != nil {
		return nil, err
	}
	return &pb.OpenSessionResponse{SessionId: id.String(), Ttl: wire.DurationText(e.ttl)}, nil
}

func ttlOr(text string, byDefault time.Duration) (time.Duration, error) {
	ttl, err := wire.ParseDuration("ttl", text)
	if err == nil && ttl == 0 {
		ttl = byDefault
	}
	return ttl, err
}

// CloseSession ends a session. That it has ended before is as good.
func (s *service) CloseSession(ctx context.Context, r *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	id, err := lease.ParseSessionID(r.SessionId)
	if err != nil {
		return nil, err
	}
	e, err := s.sessions.attach(ctx, id)
	if err == nil {
		err = e.Close(ctx)
	}
	if err != nil && !errors.Is(err, lease.ErrLost) {
		return nil, err
	}
	return &pb.CloseSessionResponse{}, nil
}

// Renew prolongs a session.
func (s *service) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	var e *entry
	var err error
	switch {
	case r.SessionId != "" && r.Resource == "":
		var id lease.SessionID
		if id, err = lease.ParseSessionID(r.SessionId); err == nil {
			e, err = s.sessions.attach(ctx, id)
		}
	case r.SessionId == "" && r.Resource != "" && r.Token != 0:
		var found *lease.Party
		if found, err = s.holder(ctx, r.Resource, r.Token); err == nil {
			e, err = s.adopt(ctx, fencing.Resource(r.Resource), found)
		}
	default:
		err = fmt.Errorf("%w: renew needs sessionId, or resource and token", lease.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	failed, err := e.Renew(ctx)
	if err != nil {
		return nil, err
	}
	response := &pb.RenewResponse{SessionId: e.id.String(), Ttl: wire.DurationText(e.ttl)}
	for _, nonce := range failed {
		response.Failed = append(response.Failed, uint64(nonce))
	}
	holds, err := e.holds(ctx)
	if err != nil {
		return nil, err
	}
	for _, nonce := range failed {
		delete(holds, nonce)
	}
	for _, token := range holds {
		response.Tokens = append(response.Tokens, uint64(token))
	}
	if r.Token != 0 && !contains(response.Tokens, r.Token) {
		return nil, fmt.Errorf("renew %q: %w with token %d", r.Resource, lease.ErrNotHeld, r.Token)
	}
	return response, nil
}

func contains(tokens []uint64, token uint64) bool {
	for _, t := range tokens {
		if t == token {
			return true
		}
	}
	return false
}

// holder finds who holds a lock with this token.
func (s *service) holder(ctx context.Context, resource string, token uint64) (*lease.Party, error) {
	name := fencing.Resource(resource)
	status, err := s.inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	for i := range status.Holders {
		if p := &status.Holders[i]; uint64(p.Token) == token {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%q: %w with token %d", resource, lease.ErrNotHeld, token)
}

// adopt finds the session of a holder, and its lease if another member has
// granted it in the efficiency mode.
func (s *service) adopt(ctx context.Context, name fencing.Resource, p *lease.Party) (*entry, error) {
	e, err := s.sessions.attach(ctx, p.Session)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	_, known := e.fast[p.Nonce]
	e.mu.Unlock()
	if !known && s.router.local().modeOf(name) == lease.Efficiency {
		_, err = e.Acquire(ctx, lease.Request{Nonce: p.Nonce, Resources: []fencing.Resource{name}, Holder: p.Holder, Metadata: p.Metadata})
	}
	return e, err
}

// errEnded: Redis has a lease of an attempt that was released by session and
// nonce, at a member that did not know what it held. It cannot be taken over any
// more, so it is taken away, by its token.
var errEnded = errors.New("attempt has ended")

// Release gives a lease back. It says whether there was one, as far as this
// member knows: see named.
func (s *service) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	e, nonce, held, err := s.named(ctx, r)
	if errors.Is(err, errEnded) {
		err = s.router.redis.Break(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
		if err == nil {
			return &pb.ReleaseResponse{Released: true}, nil
		}
	}
	if errors.Is(err, lease.ErrNotHeld) || errors.Is(err, lease.ErrLost) {
		return &pb.ReleaseResponse{}, nil
	}
	if err == nil {
		err = e.Release(ctx, nonce)
	}
	if err == nil && [4]byte(e.id[:4]) == single {
		err = s.closeSingle(ctx, e)
	}
	if err != nil {
		return nil, err
	}
	return &pb.ReleaseResponse{Released: held}, nil
}

// named is which attempt a release is about, and whether it is known to hold
// anything. What another member has granted in the efficiency mode must be found
// before it can be released, and without a resource it cannot be: no Redis node
// has a list. An attempt that holds nothing is ended all the same, so that a late
// copy of its acquire gets nothing.
func (s *service) named(ctx context.Context, r *pb.ReleaseRequest) (e *entry, nonce lease.Nonce, held bool, err error) {
	switch {
	case r.Resource != "" && r.Token != 0:
		p, err := s.holder(ctx, r.Resource, r.Token)
		if err != nil {
			return nil, 0, false, err
		}
		e, err := s.adopt(ctx, fencing.Resource(r.Resource), p)
		refused := errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrNotHeld)
		if refused && !errors.Is(err, lease.ErrUncertain) && s.router.redis != nil {
			err = fmt.Errorf("%w: %w", errEnded, err)
		}
		return e, p.Nonce, true, err
	case r.SessionId != "" && r.Nonce != 0:
		id, err := lease.ParseSessionID(r.SessionId)
		if err != nil {
			return nil, 0, false, err
		}
		e, err := s.sessions.attach(ctx, id)
		if err != nil {
			return nil, 0, false, err
		}
		holds, err := e.holds(ctx)
		_, held := holds[lease.Nonce(r.Nonce)]
		return e, lease.Nonce(r.Nonce), held, err
	}
	return nil, 0, false, fmt.Errorf("%w: release needs resource and token, or sessionId and nonce", lease.ErrInvalid)
}

// closeSingle ends the session of one lease, unless it was used for more.
func (s *service) closeSingle(ctx context.Context, e *entry) error {
	requests, err := s.router.node.Session(ctx, e.id, raftstore.Stale)
	if errors.Is(err, lease.ErrNotHeld) {
		return nil
	}
	e.mu.Lock()
	busy := len(requests)+len(e.fast) > 0
	e.mu.Unlock()
	if err != nil || busy {
		return err
	}
	return e.Close(ctx)
}

// Inspect tells who holds a lock and who waits for it.
func (s *service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	status, err := s.inspect(ctx, fencing.Resource(r.Resource))
	if err != nil {
		return nil, err
	}
	return &pb.InspectResponse{Lock: wire.FromStatusOf(status)}, nil
}

func (s *service) inspect(ctx context.Context, name fencing.Resource) (lease.Status, error) {
	engine, err := s.router.engine(name)
	if err != nil {
		return lease.Status{}, err
	}
	status, err := engine.Inspect(ctx, name)
	if err == nil && status.Mode == lease.Efficiency {
		status.Waiters = s.book.status(name).Waiters // all wait at the leader
	}
	return status, err
}

// List tells of the locks in use.
func (s *service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	const defaultPage = 100
	size := int(r.PageSize)
	switch {
	case size < 0 || size > raftstore.MaxPage:
		return nil, fmt.Errorf("%w: pageSize (%d) must be from 1 to %d", lease.ErrInvalid, size, raftstore.MaxPage)
	case size == 0:
		size = defaultPage
	}
	after := fencing.Resource(r.PageToken)
	list, err := s.router.node.List(ctx, r.Prefix, after, size, raftstore.Linearizable)
	if err != nil {
		return nil, err
	}
	for _, name := range s.book.names(r.Prefix, after, size) {
		list = append(list, s.book.status(name))
	}
	slices.SortFunc(list, func(x, y lease.Status) int { return cmp.Compare(x.Resource, y.Resource) })
	response := &pb.ListResponse{}
	for i, status := range list {
		if i == size {
			break
		}
		if checkName(status.Resource) == nil {
			response.Locks = append(response.Locks, wire.FromStatusOf(status))
		}
		if i == size-1 {
			response.NextPageToken = string(status.Resource)
		}
	}
	return response, nil
}

// Break takes a lease away from its holder.
func (s *service) Break(ctx context.Context, r *pb.BreakRequest) (*pb.BreakResponse, error) {
	if r.Token == 0 || r.Token > math.MaxInt64 {
		return nil, fmt.Errorf("%w: break needs the token of the lease; Inspect tells it", lease.ErrInvalid)
	}
	name := fencing.Resource(r.Resource)
	engine, err := s.router.engine(name)
	if err != nil {
		return nil, err
	}
	key := reasonKey{resource: name, token: fencing.Token(r.Token)}
	if engine == lease.Backend(s.router.redis) { // the machine tells by itself
		s.reasons.note(key, "broken")
	}
	if err := engine.Break(ctx, name, fencing.Token(r.Token)); err != nil {
		s.reasons.forget(key)
		return nil, err
	}
	return &pb.BreakResponse{}, nil
}
