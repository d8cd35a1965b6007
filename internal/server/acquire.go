package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// unary is one call of Acquire, outside of a stream.
type unary struct {
	*service
	call    *pb.AcquireRequest
	request engine.Request
	wait    time.Duration
	id      engine.SessionID // zero if the caller named none
	queued  atomic.Bool
}

// Acquire asks for a lock. The topology decides whether Redis or the Raft machine
// is asked; a lock that changes its mode meanwhile is routed again.
func (s *service) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	u, err := s.newUnary(r)
	if err != nil {
		return nil, err
	}
	limited := ctx
	if u.request.Wait {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, u.wait, fmt.Errorf("%w: waited %v", engine.ErrHeld, u.wait))
		defer cancel()
	}
	for {
		topology := s.router.node.Topology()
		mode, err := topology.Route(&u.request)
		var response *pb.AcquireResponse
		switch {
		case err != nil:
		case mode == engine.Efficiency:
			response, err = u.efficiency(limited, ctx)
		default:
			response, err = u.correctness(limited, ctx)
		}
		if err == nil {
			return response, nil
		}
		if limited.Err() != nil {
			err = u.waited(limited, ctx, err)
		} else {
			err = s.router.again(limited, &u.request, &topology, err)
		}
		if err != nil {
			return nil, u.holderOf(ctx, err)
		}
	}
}

// newUnary checks a call.
func (s *service) newUnary(r *pb.AcquireRequest) (*unary, error) {
	names := r.Resources
	if r.Resource != "" {
		names = append([]string{r.Resource}, names...)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: resource must be given, the name of a lock; or resources, for a set", engine.ErrInvalid)
	}
	u := &unary{service: s, call: r, request: engine.Request{Nonce: engine.Nonce(r.Nonce), Resources: wire.Resources(names...), Permits: int(r.Permits),
		Holder: r.Holder, Metadata: r.Metadata}}
	u.request.Queued = func() { u.queued.Store(true) }
	var err error
	if u.request.Kind, err = wire.LeaseKind(r.Shared, r.Permits); err != nil {
		return nil, err
	}
	if u.request.Mode, err = wire.ParseMode(r.Mode); err != nil {
		return nil, err
	}
	if u.wait, err = wire.ParseDuration("wait", r.Wait); err != nil {
		return nil, err
	}
	u.request.Wait = u.wait > 0
	if u.request.Nonce == 0 {
		u.request.Nonce = 1 // of a new session; else it is replaced
	}
	if err := u.request.Validate(); err != nil {
		return nil, err
	}
	switch {
	case r.Nonce > math.MaxUint32:
		return nil, fmt.Errorf("%w: nonce (%d) must be below 2^32", engine.ErrInvalid, r.Nonce)
	case r.SessionId != "" && r.Ttl != "":
		return nil, fmt.Errorf("%w: ttl (%s) with sessionId: the session has its own", engine.ErrInvalid, r.Ttl)
	case r.SessionId == "" && r.Nonce != 0:
		return nil, fmt.Errorf("%w: nonce (%d) without sessionId: open a session first", engine.ErrInvalid, r.Nonce)
	case r.SessionId != "":
		u.id, err = engine.ParseSessionID(r.SessionId)
	}
	return u, err
}

// ttl returns how long the lease lasts, by the call or the lock's policy.
func (u *unary) ttl() (time.Duration, error) {
	return ttlOr(u.call.Ttl, u.router.node.Topology().Policies.For(u.request.Resources[0]).TTL)
}

// efficiency asks Redis. ctx ends with the wait, caller when the caller is gone.
func (u *unary) efficiency(ctx, caller context.Context) (*pb.AcquireResponse, error) {
	if u.call.SessionId != "" {
		return nil, fmt.Errorf("%w: lock %q is in efficiency mode, which has no sessions; acquire it without sessionId, and renew it by resource and token",
			engine.ErrInvalid, string(u.request.Resources[0]))
	}
	ttl, err := u.ttl()
	if err != nil {
		return nil, err
	}
	id := newEfficiencySession()
	held, grant, err := u.service.efficiency.acquire(ctx, id, ttl, u.request)
	if err != nil {
		return nil, err
	}
	if u.queued.Load() { // its time begins with the answer
		if err := u.service.efficiency.renew(caller, []engine.Held{held})[0]; err != nil {
			u.abandon(caller, held)
			return nil, err
		}
	}
	return u.response(grant, id, ttl), nil
}

// abandon releases a lease that the caller does not get to know.
func (u *unary) abandon(ctx context.Context, held engine.Held) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_ = u.service.efficiency.release(ctx, held) // else it expires
}

func (u *unary) response(grant engine.Grant, id engine.SessionID, ttl time.Duration) *pb.AcquireResponse {
	response := &pb.AcquireResponse{Token: uint64(grant.Token), SessionId: id.String(), Nonce: uint64(u.request.Nonce),
		Mode: wire.ModeText(grant.Mode), Holder: u.request.Holder, Ttl: wire.DurationText(ttl), Slot: int32(grant.Slot)}
	for _, name := range u.request.Resources {
		response.Resources = append(response.Resources, string(name))
	}
	if response.Resource = u.call.Resource; response.Resource == "" {
		response.Resource = response.Resources[0]
	}
	return response
}

// waited says that the wait is over, if that is why a call failed.
func (u *unary) waited(limited, caller context.Context, err error) error {
	if cause := context.Cause(limited); caller.Err() == nil && errors.Is(cause, engine.ErrHeld) {
		return cause
	}
	return err
}

// holderOf adds to the error of a lock that is held who holds it.
func (u *unary) holderOf(ctx context.Context, err error) error {
	if !errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUncertain) {
		return err
	}
	for _, name := range u.request.Resources {
		status, inspectErr := u.inspect(ctx, name)
		if inspectErr != nil {
			continue
		}
		for _, h := range status.Holders {
			holder := h.Holder
			if holder == "" {
				holder = "someone without a name"
			}
			return fmt.Errorf("%w: %q by %s with token %d", err, string(name), holder, h.Token)
		}
	}
	return err
}
