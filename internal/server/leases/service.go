package leases

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/history"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// cleanupTimeout bounds the cleanup for a caller that is gone.
const cleanupTimeout = 5 * time.Second

// Service implements leased.v1.LeaseService, except for List and Watch. Its errors
// are those of package engine; the caller encodes them.
type Service struct {
	pb.UnimplementedLeaseServiceServer
	// Signing, Metrics and Recorder are set before the first call. Recorder hears of the
	// leases in efficiency mode that this member serves.
	Signing  Signing
	Metrics  *metrics.Metrics
	Recorder *history.Recorder
	// Tracer is nil without tracing.
	Tracer *tracing.Tracer

	router   *routing.Router
	sessions *sessions
	redis    redisLeases
	audit    *audit.Log
	limits   *limits.Accounts
}

// New returns a Service that records the grants of session streams in an audit log.
func New(router *routing.Router, log *audit.Log, accounts *limits.Accounts) *Service {
	s := &Service{router: router, sessions: &sessions{router: router, limits: &accounts.Limits, byID: map[engine.SessionID]*session{}},
		audit: log, limits: accounts}
	s.redis = redisLeases{s}
	return s
}

// Sweep forgets sessions that were not used for long. Call it periodically.
func (s *Service) Sweep() { s.sessions.sweep() }

// OpenSession opens a session.
func (s *Service) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
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

// ttlOr parses a TTL. An empty text is the default.
func ttlOr(text string, byDefault time.Duration) (time.Duration, error) {
	ttl, err := wire.ParsePositive("ttl", text)
	if err == nil && ttl == 0 {
		ttl = byDefault
	}
	return ttl, err
}

// CloseSession ends a session. It succeeds if the session has ended already.
func (s *Service) CloseSession(ctx context.Context, r *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	id, err := engine.ParseSessionID(r.SessionId)
	if err != nil {
		return nil, err
	}
	found, err := s.sessions.attach(ctx, id)
	if err == nil {
		err = found.close(ctx)
	}
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return nil, err
	}
	return &pb.CloseSessionResponse{}, nil
}

// Inspect returns the holders and waiters of a lock, as the caller may see them.
func (s *Service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	status, err := s.inspect(ctx, fencing.Resource(r.Resource))
	return &pb.InspectResponse{Lock: wire.FromStatusOf(auth.Visible(ctx, status), s.router.Clock.Now().Time())}, err
}

// LocalInspect returns a lock in correctness mode as this member has applied it, which
// may be old.
func (s *Service) LocalInspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	status, err := s.router.Node.Inspect(ctx, fencing.Resource(r.Resource), raftstore.Stale)
	return &pb.InspectResponse{Lock: wire.FromStatusOf(auth.Visible(ctx, status), s.router.Clock.Now().Time())}, err
}

func (s *Service) inspect(ctx context.Context, name fencing.Resource) (engine.Status, error) {
	backend, _, err := s.router.Engine(name)
	if err != nil {
		return engine.Status{}, err
	}
	return backend.Inspect(ctx, name)
}

// Break takes a lease away from its holder.
func (s *Service) Break(ctx context.Context, r *pb.BreakRequest) (*pb.BreakResponse, error) {
	if r.Token == 0 || r.Token > math.MaxInt64 {
		return nil, fmt.Errorf("%w: break needs the token of the lease; inspect the lock to see it", engine.ErrInvalid)
	}
	name := fencing.Resource(r.Resource)
	backend, mode, err := s.router.Engine(name)
	if err != nil {
		return nil, err
	}
	err = backend.Break(ctx, name, fencing.Token(r.Token))
	if err == nil && mode == engine.Efficiency {
		s.Metrics.Ended(metrics.Broken)
		s.Recorder.Add(name, history.Broken, &engine.Party{Token: fencing.Token(r.Token)}, time.Time{})
	}
	return &pb.BreakResponse{}, err
}
