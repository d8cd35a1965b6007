package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// maxLookups bounds the leases that one renewal looks up at the same time.
const maxLookups = 64

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
	w := &redisWaiter{key: attempt{engine.SessionID(op.Session), engine.Nonce(call.Acquire.Nonce)},
		done: make(chan struct{})}
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
func (st *stream) acquireInRedis(id engine.SessionID, request engine.Request, ttlNanos int64, w *redisWaiter,
	a *pb.Answer, trace *tracing.Call) error {
	if err := st.service.limits.CheckTTL(time.Duration(ttlNanos)); err != nil {
		return err
	}
	ctx := st.ctx
	if w != nil {
		ctx = w.ctx
	}
	ctx = trace.WithRounds(ctx)
	request.Mode = engine.Efficiency // the client has routed the request, and does it again if the lock has another mode
	return st.service.router.Acquire(ctx, &request, func(engine.Mode) error {
		held, grant, err := st.service.redis.acquire(ctx, id, time.Duration(ttlNanos), request)
		if err != nil {
			return err
		}
		if w != nil {
			w.held = held
		}
		st.known.add(&held)
		a.Token, a.Mode, a.Name = uint64(grant.Token), wire.ModeText(grant.Mode), held.Name
		return nil
	})
}

// renewInRedis extends leases, and answers which of them were extended and which were not. A lease
// that is refused, such as one whose metadata is too large, does not stop the others.
func (st *stream) renewInRedis(id engine.SessionID, leases []*pb.HeldLease, a *pb.Answer) error {
	var refused error
	accepted := make([]engine.Held, 0, len(leases))
	for _, l := range leases {
		held, err := st.service.heldLease(st.ctx, id, l)
		if err != nil {
			refused = err
			continue
		}
		accepted = append(accepted, held)
	}
	for i, err := range st.renewGranted(accepted) {
		held := &accepted[i]
		st.service.redis.renewed(err)
		switch {
		case err == nil:
			a.Holds = append(a.Holds, &pb.Hold{Nonce: uint64(held.Nonce), Token: uint64(held.Token)})
		case errors.Is(err, engine.ErrLost):
			st.known.remove(held.Name)
			a.Lost = append(a.Lost, &pb.Notice{Session: id[:], Nonce: uint64(held.Nonce), Lost: wire.FromError(err)})
		default:
			refused = err
		}
	}
	if len(a.Holds)+len(a.Lost) == 0 {
		return refused
	}
	return nil
}

// renewGranted extends the leases that were granted, and returns an error for each lease.
// The Redis nodes cannot check that a lease was granted: a node that lost its state takes
// back any lease whose token is high enough, so an invented lease would become a grant.
func (st *stream) renewGranted(held []engine.Held) []error {
	errs := engine.Each(len(held), maxLookups, func(i int) error { return st.checkRenewal(&held[i]) })
	var granted []engine.Held
	for i := range held {
		if errs[i] == nil {
			granted = append(granted, held[i])
		}
	}
	if len(granted) == 0 {
		return errs
	}
	renewed := st.service.redis.renew(st.ctx, granted)
	for i := range errs {
		if errs[i] == nil {
			errs[i], renewed = renewed[0], renewed[1:]
		}
	}
	return errs
}

// checkRenewal refuses a lease that was not granted, and one that its renewal would change beyond the limits. A lease
// that is beyond them already was granted before they were lowered, and is renewed as it is.
func (st *stream) checkRenewal(held *engine.Held) error {
	if st.service.checkChange(held, &engine.Held{}) == nil {
		return st.checkGranted(held)
	}
	found, err := st.find(held)
	if err != nil {
		return err
	}
	return st.service.checkChange(held, &found)
}

// checkGranted returns an error that matches engine.ErrLost for a lease that is neither
// known nor on the Redis nodes: it has expired, or never existed. A lease that is on a
// quorum of them was granted, by a member or to a client with Redis credentials.
func (st *stream) checkGranted(held *engine.Held) error {
	if st.known.has(held) {
		return nil
	}
	_, err := st.find(held)
	return err
}

// find reads a lease that a client names from the Redis nodes.
func (st *stream) find(held *engine.Held) (engine.Held, error) {
	found, err := st.service.redis.find(st.ctx, held.Resources[0], held.Token)
	if err != nil {
		return engine.Held{}, err
	}
	if found.Name != held.Name || !sameLocks(found.Resources, held.Resources) {
		return engine.Held{}, notHeld(st.ctx, string(held.Resources[0]), uint64(held.Token))
	}
	st.known.add(held)
	return found, nil
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
		st.known.remove(w.held.Name)
		return st.service.redis.release(st.ctx, w.held)
	}
	if call.Lease.Name == "" {
		return st.service.redis.releaseAttempt(st.ctx, key, call.Lease.Resources)
	}
	held, err := st.service.heldLease(st.ctx, id, call.Lease)
	if err == nil {
		err = st.checkRelease(&held)
	}
	if err != nil {
		return err
	}
	if err := st.checkGranted(&held); err != nil { // the client may have invented it
		held.Token = fencing.None // it must not end the leases of others
		return st.service.redis.end(st.ctx, held)
	}
	st.known.remove(held.Name)
	return st.service.redis.release(st.ctx, held)
}

// checkRelease refuses an invented lease on locks that the caller may not acquire: its
// release would write to their records. A user who has lost the right can still release
// a lease that exists.
func (st *stream) checkRelease(held *engine.Held) error {
	for _, name := range held.Resources {
		if !auth.Can(st.ctx, auth.Acquire, string(name)) {
			return st.checkGranted(held)
		}
	}
	return nil
}

// heldLease reads and validates a lease that a client names. The name contains the
// session, the nonce and the owner. Errors leave it out, because they go to the audit log.
func (s *Service) heldLease(ctx context.Context, id engine.SessionID, l *pb.HeldLease) (engine.Held, error) {
	held := wire.ToHeld(id, l)
	if err := requestOf(&held).Validate(); err != nil {
		return held, err
	}
	if held.Name == "" || !held.Token.Valid() {
		return held, fmt.Errorf("%w: a lease in efficiency mode needs the name and the token that its acquire returned",
			engine.ErrInvalid)
	}
	if held.User = redlockadapter.UserOf(held.Name); !auth.Owns(ctx, held.User) {
		return held, fmt.Errorf("%w: the lease of %q belongs to another user; only its owner can use it", engine.ErrForbidden,
			string(held.Resources[0]))
	}
	if session, nonce := redlockadapter.AttemptOf(held.Name); session != id || nonce != held.Nonce {
		return held, fmt.Errorf("%w: the name of the lease of %q is not of this session and nonce; use the name that the "+
			"acquire returned",
			engine.ErrInvalid, string(held.Resources[0]))
	}
	return held, nil
}

// checkChange checks what a renewal changes of a lease. What the lease has already may be beyond limits that were
// lowered since, and so may the TTL with which it is renewed after it was extended.
func (s *Service) checkChange(held, before *engine.Held) error {
	if held.TTL > before.TTL || held.TTL < min(before.TTL, s.limits.TTLMin) {
		if err := s.limits.CheckTTL(held.TTL); err != nil {
			return err
		}
	}
	if maps.Equal(held.Metadata, before.Metadata) {
		return nil
	}
	return s.limits.CheckRequest(&engine.Request{Metadata: held.Metadata})
}

// requestOf returns the request that a lease answers.
func requestOf(held *engine.Held) *engine.Request {
	return &engine.Request{Nonce: held.Nonce, Resources: held.Resources, Holder: held.Holder, Metadata: held.Metadata}
}
