package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// acquisition is one unary Acquire.
type acquisition struct {
	*Service
	call    *pb.AcquireRequest
	request engine.Request
	wait    time.Duration
	session engine.SessionID // zero if the caller named none
	mode    engine.Mode      // the one that served it last
	queued  atomic.Bool
	counted engine.Instant // when the TTL began, for display
	trace   *tracing.Call  // nil if the call is not traced
}

// Acquire asks for a lock in the mode that it has.
func (s *Service) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	measured := s.metrics.StartAcquire()
	a, err := s.newAcquisition(r, callerName(ctx), tracing.CallOf(ctx))
	if err != nil {
		measured.Refused(s.router.ModeOf(fencing.Resource(r.Resource)), metrics.CodeOf(err))
		return nil, err
	}
	response, err := a.run(ctx)
	if err != nil {
		measured.Refused(s.router.ModeOf(a.request.Resources[0]), metrics.CodeOf(err))
		return nil, err
	}
	measured.Granted(a.mode)
	return response, nil
}

// run asks for the lock.
func (a *acquisition) run(ctx context.Context) (*pb.AcquireResponse, error) {
	limited := ctx
	if a.request.Wait {
		done, err := a.limits.Of(ctx).Wait()
		if err != nil {
			return nil, err
		}
		defer done()
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, a.wait, fmt.Errorf("%w: waited %v", engine.ErrHeld, a.wait))
		defer cancel()
		if a.call.SessionId != "" {
			var end context.CancelCauseFunc
			limited, end = context.WithCancelCause(limited)
			defer end(nil)
			go a.keepSession(limited, end)
		}
	}
	response, err := a.ask(limited, ctx)
	switch {
	case err == nil:
		return response, nil
	case errors.Is(err, engine.ErrUncertain):
	case (!a.queued.Load() || a.mode == engine.Efficiency) && limited.Err() != nil && ctx.Err() == nil:
		// No node was asked: the wait was too short, or this member had seen that the lock is held in Redis. Another
		// member may have released it since.
		a.request.Wait = false
		if response, err = a.ask(ctx, ctx); err == nil {
			return response, nil
		}
	default:
		err = waitEnded(limited, ctx, err) // also if it was queued before a migration
	}
	return nil, withHolder(ctx, err, a.request.Resources, func(name fencing.Resource) (engine.Status, int) {
		status, err := a.inspect(ctx, name)
		if err != nil {
			return engine.Status{}, 0
		}
		return status, len(status.Waiters)
	})
}

// ask requests the lock from the engine of its mode. ctx is done when the wait is over, and caller when the client has
// gone away.
func (a *acquisition) ask(ctx, caller context.Context) (response *pb.AcquireResponse, err error) {
	held, err := a.heldInMigration(caller)
	if err != nil {
		return nil, err
	}
	if held {
		a.mode, a.counted = engine.Correctness, a.router.Clock.Now()
		response, err = a.fromRaft(ctx, caller)
		if err == nil || errors.Is(err, engine.ErrUncertain) || routing.IsNotLeader(err) {
			return response, err
		}
	}
	err = a.router.Acquire(ctx, &a.request, func(mode engine.Mode) (err error) {
		a.mode, a.counted = mode, a.router.Clock.Now() // the locks may have migrated for a while
		if mode == engine.Efficiency {
			response, err = a.fromRedis(ctx, caller)
		} else {
			response, err = a.fromRaft(ctx, caller)
		}
		return err
	})
	return response, err
}

// newAcquisition validates a call. caller names a holder without a name.
func (s *Service) newAcquisition(r *pb.AcquireRequest, caller string, trace *tracing.Call) (*acquisition, error) {
	names := r.Resources
	switch {
	case r.Resource != "" && len(names) > 0:
		return nil, fmt.Errorf("%w: resource (%s) and resources (%s) cannot be combined; name all locks of a set in "+
			"resources",
			engine.ErrInvalid, r.Resource, strings.Join(names, ", "))
	case r.Resource != "":
		names = []string{r.Resource}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: acquire needs resource, the name of a lock, or resources, for a set", engine.ErrInvalid)
	}
	a := &acquisition{Service: s, call: r, trace: trace}
	var err error
	if a.request, err = wire.ToRequest(&pb.AcquireCall{Nonce: r.Nonce, Resources: names, Shared: r.Shared,
		Permits: r.Permits, Mode: r.Mode, Holder: cmp.Or(r.Holder, caller), Metadata: r.Metadata}); err != nil {
		return nil, err
	}
	a.request.Queued = func() {
		a.queued.Store(true)
		a.trace.Step(tracing.Queue)
	}
	if a.wait, err = wire.ParseDuration("wait", r.Wait); err != nil {
		return nil, err
	}
	a.request.Wait = a.wait > 0
	if a.request.Nonce == 0 {
		a.request.Nonce = 1 // of a new session; in the caller's session the service chooses another
	}
	if err := s.limits.CheckRequest(&a.request); err != nil {
		return nil, err
	}
	if err := a.request.Validate(); err != nil {
		return nil, err
	}
	switch {
	case r.Attempt != "" && r.SessionId != "":
		return nil, fmt.Errorf("%w: attempt cannot be combined with sessionId; an attempt in a session has a nonce",
			engine.ErrInvalid)
	case r.Attempt != "" && (len(r.Attempt) < minAttempt || len(r.Attempt) > maxAttempt):
		return nil, fmt.Errorf("%w: attempt has %d bytes; use a random text of %d to %d", engine.ErrInvalid, len(r.Attempt),
			minAttempt, maxAttempt)
	case r.Nonce > math.MaxUint32:
		return nil, fmt.Errorf("%w: nonce (%d) must be below 2^32", engine.ErrInvalid, r.Nonce)
	case r.SessionId != "" && r.Ttl != "":
		return nil, fmt.Errorf("%w: ttl (%s) cannot be combined with sessionId; the session has its own TTL",
			engine.ErrInvalid, r.Ttl)
	case r.SessionId == "" && r.Nonce != 0:
		return nil, fmt.Errorf("%w: nonce (%d) needs a sessionId; open a session first, or use attempt", engine.ErrInvalid,
			r.Nonce)
	case r.SessionId != "":
		a.session, err = engine.ParseSessionID(r.SessionId)
	}
	return a, err
}

// ttl returns the TTL of the lease, from the call or the lock's policy.
func (a *acquisition) ttl() (time.Duration, error) {
	return ttlOr(a.call.Ttl, a.router.Node.Topology().Policies.For(a.request.Resources[0]).TTL)
}

// fromRedis asks the Redis nodes. ctx ends with the wait, caller when the caller is
// gone.
func (a *acquisition) fromRedis(ctx, caller context.Context) (*pb.AcquireResponse, error) {
	if a.call.SessionId != "" {
		return nil, fmt.Errorf("%w: lock %q is in efficiency mode, which has no sessions; acquire it without sessionId, "+
			"and renew it by resource and token",
			engine.ErrInvalid, string(a.request.Resources[0]))
	}
	ttl, err := a.ttl()
	if err == nil {
		err = a.limits.CheckTTL(ttl)
	}
	if err != nil {
		return nil, err
	}
	id := a.singleID(caller, redisMark)
	request := a.request
	request.Wait = request.Wait && a.call.Attempt == "" // the copy of a call must not wait for its own lease
	held, grant, err := a.redis.acquire(a.trace.WithRounds(ctx), id, ttl, request)
	for errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrLimit) { // perhaps because of an earlier copy
		found, again, unknown := a.repeated(caller, id)
		if unknown != nil {
			return nil, fmt.Errorf("%w: an earlier copy of the call may have been granted: %w", engine.ErrUncertain, unknown)
		}
		if found != nil {
			return found, nil
		}
		if !again && request.Wait == a.request.Wait {
			break
		}
		request.Wait = request.Wait || !again
		held, grant, err = a.redis.acquire(a.trace.WithRounds(ctx), id, ttl, request)
	}
	if err != nil {
		return nil, waitEnded(ctx, caller, err) // the engine has released the attempt
	}
	if a.queued.Load() {
		a.counted = a.router.Clock.Now()
		if err := a.redis.confirm(caller, held); err != nil {
			return nil, err
		}
	}
	return a.response(grant, id, ttl), nil
}

func (a *acquisition) response(grant engine.Grant, id engine.SessionID, ttl time.Duration) *pb.AcquireResponse {
	response := &pb.AcquireResponse{Token: uint64(grant.Token), SessionId: id.String(), Nonce: uint64(a.request.Nonce),
		Mode: wire.ModeText(grant.Mode), Holder: a.request.Holder, Ttl: wire.DurationText(ttl), Slot: int32(grant.Slot),
		Expires: expires(a.counted, ttl)}
	for _, name := range a.request.Resources {
		response.Resources = append(response.Resources, string(name))
	}
	if response.Resource = a.call.Resource; response.Resource == "" {
		response.Resource = response.Resources[0]
	}
	return response
}

// withHolder adds the holder of one of these locks to an error that matches engine.ErrHeld, as far as the
// caller may see it, and the place in the queue. look returns the status of a lock and the number of its waiters.
func withHolder(ctx context.Context, err error, locks []fencing.Resource,
	look func(fencing.Resource) (engine.Status, int)) error {
	if !errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUncertain) {
		return err
	}
	for _, name := range locks {
		if !auth.Can(ctx, auth.Read, string(name)) {
			continue
		}
		status, waiters := look(name)
		if len(status.Holders) == 0 {
			continue
		}
		h := auth.Visible(ctx, status).Holders[0]
		by := cmp.Or(h.Holder, "an unnamed holder")
		if h.User != "" {
			by += " (user " + h.User + ")"
		}
		if h.Token != fencing.None {
			by += fmt.Sprintf(" with token %d", h.Token)
		}
		return &engine.HeldError{Err: fmt.Errorf("%w: %q by %s", err, string(name), by), Resource: name, By: h,
			Position: waiters + 1}
	}
	return err
}
