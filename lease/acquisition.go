package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// acquisition is one call of Acquire: attempts, until one is granted, certainly
// refused, or nobody waits any more.
type acquisition struct {
	client *Client
	plan   *plan
	began  engine.Instant
	values context.Context // the caller's, for the lease's context

	keeper *keeper      // the session that is being asked, nil before the first
	nonce  engine.Nonce // the attempt in that session whose outcome is open, else 0
	queued atomic.Bool
}

// begin learns the lock's policy, then runs. ctx ends with the caller's patience.
func (a *acquisition) begin(ctx context.Context) (*Lease, error) {
	if err := a.learn(ctx); err != nil {
		return nil, err
	}
	return a.run(ctx)
}

// run tries until the outcome is certain.
func (a *acquisition) run(ctx context.Context) (*Lease, error) {
	if !a.plan.reentrant {
		return a.loop(ctx, nil)
	}
	e, err := a.client.holders.turn(ctx, a.plan)
	if err != nil {
		return nil, a.gaveUp(ctx, err)
	}
	defer a.client.holders.done(e)
	if l, err := a.client.holders.reenter(a.values, e, a.plan); l != nil || err != nil {
		return l, err
	}
	return a.loop(ctx, e)
}

func (a *acquisition) loop(ctx context.Context, e *entry) (*Lease, error) {
	defer a.leave()
	for n := 0; ; n++ {
		l, err := a.once(ctx, e)
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil || final(err) || a.plan.try && !(errors.Is(err, engine.ErrLost) && n == 0):
			return nil, a.gaveUp(ctx, err)
		}
		emit(a.client.hooks.Waiting, a.event(err))
		if sleep(ctx, pause(n)) != nil {
			return nil, a.gaveUp(ctx, err)
		}
	}
}

// once asks the service once, with the nonce of the attempt whose outcome is
// open if there is one. That the session has run out is no answer to someone
// who asks for a lock, so even TryAcquire gets a second session.
func (a *acquisition) once(ctx context.Context, e *entry) (*Lease, error) {
	if a.keeper != nil && a.keeper.isGone() {
		a.leave()
	}
	if a.keeper == nil {
		a.keeper = a.client.keeper(a.plan.timing, a.plan.fixed)
	}
	k := a.keeper
	if err := k.open(ctx); err != nil {
		return nil, err
	}
	if a.nonce == 0 {
		a.nonce = k.newNonce()
	}
	a.queued.Store(false)
	request := a.plan.request
	request.Nonce = a.nonce
	request.Queued = func() {
		a.queued.Store(true)
		emit(a.client.hooks.Waiting, a.event(nil))
	}
	before := a.client.clock.Now()
	grant, err := k.session.Acquire(ctx, request)
	if err != nil {
		switch {
		case ctx.Err() != nil: // whatever the error says, nobody waited for the answer
		case errors.Is(err, engine.ErrLost):
			k.over(err)
			a.endAttempt(err)
		case refusal(err):
			a.endAttempt(err)
		}
		return nil, err
	}
	h := &hold{keeper: k, nonce: a.nonce, request: request, named: a.plan.named, grant: grant, sent: grant.Sent, entry: e}
	if h.sent.IsZero() {
		h.sent = before
	}
	a.nonce = 0
	a.client.holders.remember(h)
	l, err := k.adopt(a.values, h)
	if err != nil {
		a.client.holders.forget(h)
		return nil, err
	}
	if a.plan.fixed && a.queued.Load() {
		_ = k.renew(ctx) // its time should begin now, not with the last keep-alive
	}
	return l, nil
}

// leave ends the open attempt, if any, and the use of the session.
func (a *acquisition) leave() {
	if a.keeper == nil {
		return
	}
	a.endAttempt(nil)
	a.client.leave(a.keeper)
	a.keeper = nil
}

func (a *acquisition) endAttempt(err error) {
	if a.nonce != 0 {
		a.keeper.endAttempt(a.nonce, err)
		a.nonce = 0
	}
}

// gaveUp is the error for the caller: why the waiting ended, and what stood in
// the way last.
func (a *acquisition) gaveUp(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return err
	}
	interrupted := errors.Is(err, ctx.Err()) || errors.Is(err, cause)
	var limit waitLimit
	switch {
	case errors.As(cause, &limit) && interrupted:
		return fmt.Errorf("%w: waited %v", engine.ErrHeld, time.Duration(limit))
	case errors.As(cause, &limit): // it was the service that did not answer
		return fmt.Errorf("%w; gave up after %v", err, time.Duration(limit))
	case interrupted:
		return cause
	}
	return fmt.Errorf("%w (last: %w)", cause, err)
}

// waitLimit is the cause of a context that ended because the limit has passed.
type waitLimit time.Duration

// Error says how long it was.
func (w waitLimit) Error() string { return fmt.Sprintf("waited %v", time.Duration(w)) }

func (a *acquisition) event(err error) Event {
	return Event{Resources: a.plan.request.Resources, Holder: a.plan.request.Holder, Mode: a.plan.request.Mode,
		Elapsed: a.client.clock.Now().Since(a.began), Err: err}
}
