package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// Operations on locks in efficiency mode. They need no session and no leader, and
// leave nothing with the stream but acquires that wait.

// waiting is an acquire in efficiency mode that waits. Its release ends it.
type waiting struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when it has an outcome
	held   engine.Held   // the outcome, if it was granted
}

// expect registers an acquire that waits, before the next operation is read: it
// may be the release.
func (st *stream) expect(op *pb.Operation) *waiting {
	call, ok := op.Call.(*pb.Operation_Acquire)
	if !ok || !call.Acquire.Wait || call.Acquire.TtlNanos == 0 || len(op.Session) != len(engine.SessionID{}) {
		return nil
	}
	w := &waiting{done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(st.ctx)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.waits[attempt{engine.SessionID(op.Session), engine.Nonce(call.Acquire.Nonce)}] = w
	return w
}

// acquireEfficiency asks Redis.
func (st *stream) acquireEfficiency(id engine.SessionID, call *pb.AcquireCall, w *waiting, a *pb.Answer) error {
	ctx := st.ctx
	if w != nil {
		ctx = w.ctx
		defer st.decided(attempt{id, engine.Nonce(call.Nonce)}, w)
	}
	request, err := wire.ToRequest(call)
	if err != nil {
		return err
	}
	if request.Wait {
		request.Queued = func() { st.notifyQueued(id, request.Nonce) }
	}
	held, grant, err := st.service.efficiency.acquire(ctx, id, time.Duration(call.TtlNanos), request)
	if err != nil {
		return err
	}
	if w != nil {
		w.held = held
	}
	a.Token, a.Mode, a.Name = uint64(grant.Token), wire.ModeText(grant.Mode), held.Name
	return nil
}

// decided ends the wait of an acquire that has an outcome.
func (st *stream) decided(key attempt, w *waiting) {
	st.mu.Lock()
	if st.waits[key] == w {
		delete(st.waits, key)
	}
	st.mu.Unlock()
	w.cancel()
	close(w.done)
}

// renewEfficiency extends leases, and answers for each that was not extended.
func (st *stream) renewEfficiency(id engine.SessionID, leases []*pb.HeldLease, a *pb.Answer) error {
	held := make([]engine.Held, len(leases))
	for i, l := range leases {
		var err error
		if held[i], err = st.service.heldOf(id, l); err != nil {
			return err
		}
	}
	var unknown error
	for i, err := range st.service.efficiency.renew(st.ctx, held) {
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

// releaseEfficiency gives a lease back, or ends an acquire that waits.
func (st *stream) releaseEfficiency(id engine.SessionID, call *pb.ReleaseCall) error {
	st.mu.Lock()
	w := st.waits[attempt{id, engine.Nonce(call.Nonce)}]
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
		return st.service.efficiency.release(st.ctx, w.held)
	}
	if call.Lease.Name == "" {
		return st.service.efficiency.releaseUnnamed(st.ctx, attempt{id, engine.Nonce(call.Nonce)}, call.Lease.Resources)
	}
	held, err := st.service.heldOf(id, call.Lease)
	if err != nil {
		return err
	}
	return st.service.efficiency.release(st.ctx, held)
}

// heldOf reads a lease, and checks what a client could get wrong. Its TTL is
// bounded since a node that lost its state waits for the longest.
func (s *service) heldOf(id engine.SessionID, l *pb.HeldLease) (engine.Held, error) {
	held := engine.Held{Name: l.Name, Session: id, Nonce: engine.Nonce(l.Nonce), Resources: wire.Resources(l.Resources...),
		Token: fencing.Token(l.Token), TTL: time.Duration(l.TtlNanos), Holder: l.Holder, Metadata: l.Metadata}
	request := engine.Request{Nonce: held.Nonce, Resources: held.Resources, Holder: held.Holder, Metadata: held.Metadata}
	if err := request.Validate(); err != nil {
		return held, err
	}
	longest := s.router.node.Topology().Fleet.MaxTTL
	switch {
	case held.Name == "" || !held.Token.Valid():
		return held, fmt.Errorf("%w: a lease in efficiency mode is named by name and token, as its acquire was answered", engine.ErrInvalid)
	case held.TTL < engine.MinTTL || longest != 0 && held.TTL > longest:
		return held, fmt.Errorf("%w: ttl (%v) must be from %v to %v", engine.ErrInvalid, held.TTL, engine.MinTTL, longest)
	}
	return held, nil
}
