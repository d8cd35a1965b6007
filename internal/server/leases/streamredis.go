package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/redlockadapter"
)

// redisWaiter is an acquire in efficiency mode that waits. A release of its attempt
// cancels it.
type redisWaiter struct {
	key    attempt
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the acquire has an outcome
	held   engine.Held   // the outcome, if it was granted
}

// addWaiter registers an acquire that waits. The reader calls it before it reads the
// next operation, which may be the release.
func (st *stream) addWaiter(op *pb.Operation) *redisWaiter {
	call, ok := op.Call.(*pb.Operation_Acquire)
	if !ok || !call.Acquire.Wait || call.Acquire.TtlNanos == 0 || len(op.Session) != len(engine.SessionID{}) {
		return nil
	}
	w := &redisWaiter{key: attempt{engine.SessionID(op.Session), engine.Nonce(call.Acquire.Nonce)}, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(st.ctx)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.waiters[w.key] = w
	return w
}

// removeWaiter removes an acquire that has an outcome.
func (st *stream) removeWaiter(w *redisWaiter) {
	st.mu.Lock()
	if st.waiters[w.key] == w {
		delete(st.waiters, w.key)
	}
	st.mu.Unlock()
	w.cancel()
	close(w.done)
}

// acquireInRedis asks the Redis nodes.
func (st *stream) acquireInRedis(id engine.SessionID, request engine.Request, ttlNanos int64, w *redisWaiter, a *pb.Answer) error {
	if err := st.service.limits.CheckTTL(time.Duration(ttlNanos)); err != nil {
		return err
	}
	ctx := st.ctx
	if w != nil {
		ctx = w.ctx
	}
	request.Mode = engine.Efficiency // the client has routed the request, and does it again if the lock has another mode
	return st.service.router.Acquire(ctx, &request, func(engine.Mode) error {
		held, grant, err := st.service.redis.acquire(ctx, id, time.Duration(ttlNanos), request)
		if err != nil {
			return err
		}
		if w != nil {
			w.held = held
		}
		a.Token, a.Mode, a.Name = uint64(grant.Token), wire.ModeText(grant.Mode), held.Name
		return nil
	})
}

// renewInRedis extends leases, and answers with those that were not extended.
func (st *stream) renewInRedis(id engine.SessionID, leases []*pb.HeldLease, a *pb.Answer) error {
	held := make([]engine.Held, len(leases))
	for i, l := range leases {
		var err error
		if held[i], err = st.service.heldLease(st.ctx, id, l); err != nil {
			return err
		}
	}
	var unknown error
	for i, err := range st.service.redis.renew(st.ctx, held) {
		switch {
		case err == nil:
		case errors.Is(err, engine.ErrLost):
			a.Lost = append(a.Lost, &pb.Notice{Session: id[:], Nonce: leases[i].Nonce, Lost: wire.FromError(err)})
		default:
			unknown = err
			a.Failed = append(a.Failed, leases[i].Nonce)
		}
	}
	if len(a.Failed) == len(leases) {
		return unknown
	}
	return nil
}

// releaseInRedis releases a lease, or cancels an acquire that waits.
func (st *stream) releaseInRedis(id engine.SessionID, call *pb.ReleaseCall) error {
	key := attempt{id, engine.Nonce(call.Nonce)}
	st.mu.Lock()
	w := st.waiters[key]
	st.mu.Unlock()
	if w != nil {
		w.cancel()
		select {
		case <-w.done:
		case <-st.ctx.Done():
			return context.Cause(st.ctx)
		}
		if w.held.Name == "" {
			return nil
		}
		return st.service.redis.release(st.ctx, w.held)
	}
	if call.Lease.Name == "" {
		return st.service.redis.releaseAttempt(st.ctx, key, call.Lease.Resources)
	}
	held, err := st.service.heldLease(st.ctx, id, call.Lease)
	if err != nil {
		return err
	}
	return st.service.redis.release(st.ctx, held)
}

// heldLease reads and validates a lease that a client names. It bounds the TTL,
// because a node that lost its state waits for the longest TTL before it votes. The
// name contains the owner.
func (s *Service) heldLease(ctx context.Context, id engine.SessionID, l *pb.HeldLease) (engine.Held, error) {
	held := wire.ToHeld(id, l)
	request := engine.Request{Nonce: held.Nonce, Resources: held.Resources, Holder: held.Holder, Metadata: held.Metadata}
	if err := request.Validate(); err != nil {
		return held, err
	}
	longest := s.router.Node.Topology().Fleet.MaxTTL
	switch {
	case held.Name == "" || !held.Token.Valid():
		return held, fmt.Errorf("%w: a lease in efficiency mode needs the name and the token that its acquire returned", engine.ErrInvalid)
	case held.TTL < engine.MinTTL || longest != 0 && held.TTL > longest:
		return held, fmt.Errorf("%w: ttl (%v) must be from %v to %v", engine.ErrInvalid, held.TTL, engine.MinTTL, longest)
	}
	if held.User = redlockadapter.UserOf(held.Name); !auth.Owns(ctx, held.User) {
		return held, fmt.Errorf("%w: the lease %s belongs to another user; only its owner can use it", engine.ErrForbidden, held.Name)
	}
	return held, s.checkRecord(ctx, held)
}

// checkRecord refuses an invented lease on locks that the caller may not acquire: its
// release would write to their records. A user who has lost the right can still release
// a lease that exists on the Redis nodes.
func (s *Service) checkRecord(ctx context.Context, held engine.Held) error {
	for _, name := range held.Resources {
		if auth.Can(ctx, auth.Acquire, string(name)) {
			continue
		}
		found, err := s.redis.find(ctx, name, held.Token)
		if err != nil {
			return err
		}
		if found.Name != held.Name {
			return notHeld(ctx, string(name), uint64(held.Token))
		}
	}
	return nil
}
