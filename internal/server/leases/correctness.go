package leases

import (
	"context"
	"errors"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// raftAcquisition is the part of a unary Acquire that the Raft machine serves.
type raftAcquisition struct {
	session *session
	request engine.Request
	single  bool // the session was opened for this call
	named   bool // the caller knows the nonce
}

// fromRaft asks the Raft machine. ctx ends with the wait, caller when the caller is
// gone.
func (a *acquisition) fromRaft(ctx, caller context.Context) (*pb.AcquireResponse, error) {
	r, err := a.newRaftAcquisition(caller)
	if err != nil {
		return nil, err
	}
	grant, err := r.run(ctx, caller)
	if err != nil {
		r.abandon(caller, err)
		return nil, err
	}
	a.request.Nonce = r.request.Nonce
	return a.response(grant, r.session.id, r.session.ttl), nil
}

// newRaftAcquisition finds the caller's session, or opens one for this lease.
func (a *acquisition) newRaftAcquisition(ctx context.Context) (*raftAcquisition, error) {
	r := &raftAcquisition{request: a.request, single: a.call.SessionId == "", named: a.call.Nonce != 0}
	if r.single {
		ttl, err := a.ttl()
		if err == nil {
			r.session, err = a.sessions.open(ctx, newMarkedID(singleMark), ttl)
		}
		return r, err
	}
	var err error
	if r.session, err = a.sessions.attach(ctx, a.session); err != nil {
		return nil, err
	}
	if !r.named {
		r.request.Nonce, err = r.session.nextNonce(ctx)
	}
	return r, err
}

// run asks for the lock. While the request waits, run keeps the session alive on
// behalf of the caller, which renews only what it holds.
func (r *raftAcquisition) run(ctx, caller context.Context) (engine.Grant, error) {
	if !r.request.Wait {
		return r.session.raft.Acquire(ctx, r.request)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type outcome struct {
		grant engine.Grant
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		grant, err := r.session.raft.Acquire(ctx, r.request)
		done <- outcome{grant, err}
	}()
	keepAlive := time.NewTicker(r.session.ttl / 3)
	defer keepAlive.Stop()
	for {
		select {
		case out := <-done:
			if out.err == nil { // the caller counts the TTL from the answer
				_, out.err = r.session.renew(caller)
			}
			return out.grant, out.err
		case <-keepAlive.C:
			if _, err := r.session.renew(ctx); errors.Is(err, engine.ErrLost) {
				cancel(err)
			}
		}
	}
}

// abandon ends a failed attempt, so that it leaves nothing behind, unless the
// caller can repeat it by its nonce. An invalid call made no attempt: its nonce may
// be that of a live attempt.
func (r *raftAcquisition) abandon(ctx context.Context, err error) {
	repeatable := r.named && errors.Is(err, engine.ErrUncertain)
	invalid := !r.single && errors.Is(err, engine.ErrInvalid)
	if repeatable || invalid {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if r.single {
		_ = r.session.close(ctx) // otherwise it expires
	} else {
		_ = r.session.raft.Release(ctx, r.request.Nonce)
	}
}
