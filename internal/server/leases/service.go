package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/observe"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// cleanupTimeout bounds the cleanup for a caller that is gone.
const cleanupTimeout = 5 * time.Second

// Service implements the calls of leased.v1.LeaseService on sessions and leases. It returns
// errors of package engine; the caller encodes them.
type Service struct {
	chain    *calls.Chain
	router   *routing.Router
	limits   *limits.Accounts
	metrics  *metrics.Metrics
	recorder *observe.Recorder
	signing  Signing
	nonces   nonces
	copies   copies
	redis    redisLeases
}

// New returns a Service behind a chain. The operations of session streams pass the chain one by
// one. The Service reports the leases in efficiency mode that this member serves to the
// recorder.
func New(chain *calls.Chain, recorder *observe.Recorder, signing Signing) *Service {
	s := &Service{chain: chain, router: chain.Router, limits: chain.Limits, metrics: chain.Metrics, recorder: recorder,
		signing: signing}
	s.redis = redisLeases{s}
	return s
}

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
	opened, err := s.open(ctx, id, ttl, nil)
	if err != nil {
		return nil, err
	}
	return &pb.OpenSessionResponse{SessionId: id.String(), Ttl: wire.DurationText(opened.TTL())}, nil
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
	found, err := s.attach(ctx, id, nil)
	if err == nil {
		err = found.Close(ctx)
	}
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return nil, err
	}
	return &pb.CloseSessionResponse{}, nil
}

// Inspect returns the holders and waiters of a lock, as the caller may see them.
func (s *Service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	status, err := routing.Ask(ctx, s.router, func() (engine.Status, error) {
		return s.inspect(ctx, fencing.Resource(r.Resource))
	})
	return &pb.InspectResponse{Lock: wire.FromStatusOf(auth.Visible(ctx, status), s.router.Clock.Now().Time())}, err
}

// LocalInspect returns a lock in correctness mode as this member has applied it, which
// may be old.
func (s *Service) LocalInspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	status, err := s.router.Node.Inspect(ctx, fencing.Resource(r.Resource), raftstore.Stale)
	return &pb.InspectResponse{Lock: wire.FromStatusOf(auth.Visible(ctx, status), s.router.Clock.Now().Time())}, err
}

func (s *Service) inspect(ctx context.Context, name fencing.Resource) (engine.Status, error) {
	backend, mode, err := s.router.Engine(name)
	if err != nil {
		return engine.Status{}, err
	}
	status, err := backend.Inspect(ctx, name)
	if err == nil && mode == engine.Efficiency {
		err = s.router.CheckEfficiency(ctx, name)
	}
	return status, err
}

// Break takes a lease away from its holder.
func (s *Service) Break(ctx context.Context, r *pb.BreakRequest) (*pb.BreakResponse, error) {
	if !fencing.Token(r.Token).Valid() {
		return nil, fmt.Errorf("%w: break needs the token of the lease; inspect the lock to see it", engine.ErrInvalid)
	}
	var b breaking
	name, token := fencing.Resource(r.Resource), fencing.Token(r.Token)
	answer, err := routing.Ask(ctx, s.router, func() (*pb.BreakResponse, error) {
		earlier, err := b.after(s.breakLease(ctx, name, token))
		if earlier {
			s.broken(name, token)
		}
		return &pb.BreakResponse{}, err
	})
	_, err = b.after(err) // there was perhaps no newer topology to ask again under
	return answer, err
}

// breaking combines the calls of one break, which is asked again while the Redis nodes have seen a newer topology.
type breaking struct {
	uncertain bool // a call may have broken the lease
}

// after returns the outcome of the break after a call. If the lease is not held any more, an earlier call has broken
// it.
func (b *breaking) after(err error) (earlier bool, outcome error) {
	switch {
	case b.uncertain && clientcore.Matches(err, engine.ErrNotHeld):
		return true, nil
	case errors.Is(err, engine.ErrUncertain):
		b.uncertain = true
	case err != nil && b.uncertain:
		err = fmt.Errorf("%w: %w", engine.ErrUncertain, err)
	}
	return false, err
}

func (s *Service) breakLease(ctx context.Context, name fencing.Resource, token fencing.Token) error {
	backend, mode, err := s.router.Engine(name)
	if err != nil {
		return err
	}
	err = backend.Break(ctx, name, token)
	if mode != engine.Efficiency {
		return err
	}
	if err == nil {
		s.broken(name, token)
	}
	return s.sureNotHeld(ctx, name, err)
}

// broken records that a lease in efficiency mode was broken.
func (s *Service) broken(name fencing.Resource, token fencing.Token) {
	s.metrics.Ended(metrics.Broken)
	s.recorder.Add(name, observe.Broken, &engine.Party{Token: token}, time.Time{})
}
