package server

import (
	"context"
	"errors"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// strict is an attempt of a unary Acquire in correctness mode.
type strict struct {
	session *session
	request engine.Request
	single  bool // the session was opened for this call
	named   bool // the caller knows the nonce
}

// correctness asks the Raft machine. ctx ends with the wait, caller when the
// caller is gone.
func (u *unary) correctness(ctx, caller context.Context) (*pb.AcquireResponse, error) {
	a, err := u.newStrict(caller)
	if err != nil {
		return nil, err
	}
	grant, err := a.run(ctx, caller)
	if err != nil {
		a.giveUp(caller, err)
		return nil, err
	}
	u.request.Nonce = a.request.Nonce
	return u.response(grant, a.session.id, a.session.ttl), nil
}

// newStrict finds or opens the session.
func (u *unary) newStrict(ctx context.Context) (*strict, error) {
	a := &strict{request: u.request, named: u.call.Nonce != 0}
	var err error
	if u.call.SessionId == "" {
		a.single = true
		var ttl time.Duration
		if ttl, err = u.ttl(); err == nil {
			a.session, err = u.sessions.open(ctx, newSingleID(), ttl)
		}
		return a, err
	}
	if err := checkSession(u.id); err != nil {
		return nil, err
	}
	if a.session, err = u.sessions.attach(ctx, u.id); err != nil {
		return nil, err
	}
	if !a.named {
		a.request.Nonce, err = a.session.nextNonce(ctx)
	}
	return a, err
}

// run asks, and keeps the session alive while it waits: the open call is the
// sign of life.
func (a *strict) run(ctx, caller context.Context) (engine.Grant, error) {
	if !a.request.Wait {
		return a.session.Acquire(ctx, a.request)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type outcome struct {
		grant engine.Grant
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		grant, err := a.session.Acquire(ctx, a.request)
		done <- outcome{grant, err}
	}()
	alive := time.NewTicker(a.session.ttl / 3)
	defer alive.Stop()
	for {
		select {
		case out := <-done:
			if out.err == nil { // its time begins with the answer
				_, out.err = a.session.Renew(caller)
			}
			return out.grant, out.err
		case <-alive.C:
			if _, err := a.session.Renew(ctx); errors.Is(err, engine.ErrLost) {
				cancel(err)
			}
		}
	}
}

// giveUp ends an attempt that nobody waits for: a failed call leaves nothing
// behind, unless the caller can ask again by nonce. An invalid call has asked for
// nothing, and its nonce may be that of another attempt, which lives.
func (a *strict) giveUp(ctx context.Context, err error) {
	retry := a.named && errors.Is(err, engine.ErrUncertain)
	invalid := !a.single && errors.Is(err, engine.ErrInvalid)
	if retry || invalid {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if a.single {
		_ = a.session.Close(ctx) // else it expires
	} else {
		_ = a.session.Release(ctx, a.request.Nonce)
	}
}
