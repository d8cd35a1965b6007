package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// acquisition is one call of Acquire or TryAcquire.
type acquisition struct {
	client   *Client
	settings acquireSettings
	began    engine.Instant
	values   context.Context // of the hook Start; for the lease's context and the hooks
	call     call

	keepAlive *keepAlive   // of the session in use, nil before the first attempt
	nonce     engine.Nonce // the attempt whose outcome is open, else 0
	asked     bool         // the service was asked before
	granted   engine.Instant
	queued    atomic.Bool
	waiting   hookQueue // calls of the hook Waiting
}

// wait acquires the lease. It gives up when ctx ends, the wait limit passes or the
// client is closed.
func (a *acquisition) wait(ctx context.Context) (*Lease, error) {
	ctx, err := a.client.enter(ctx, &a.call)
	if err != nil {
		return nil, err
	}
	defer a.client.leave(&a.call)
	if a.client.hooks.Waiting != nil {
		defer a.waiting.close()
	}
	if d := a.settings.waitLimit; d > 0 {
		limit := time.AfterFunc(d, func() { a.call.cancel(waitLimit(d)) })
		defer limit.Stop()
	}
	l, err := a.run(ctx)
	if err != nil {
		return nil, a.explain(ctx, err)
	}
	return l, nil
}

// run learns the lock's policy, re-enters a lease of the same holder if there is
// one, and otherwise asks the service. ctx ends when the caller no longer waits.
func (a *acquisition) run(ctx context.Context) (l *Lease, err error) {
	if err := a.learnPolicies(ctx); err != nil {
		return nil, err
	}
	var record *holderRecord
	if a.settings.reentrant {
		if record, err = a.client.holders.begin(ctx, &a.settings); err != nil {
			return nil, err
		}
		defer a.client.holders.end(record)
		if l, err := a.client.holders.reenter(a.values, record, &a.settings); l != nil || err != nil {
			return l, err
		}
	}
	defer a.leave()
	err = a.client.retry(ctx, a.began, a.again, func() error {
		l, err = a.askOnce(ctx, record)
		return err
	})
	return l, err
}

// again reports whether the acquisition continues after err, and calls the hook. The
// next call replaces a lost session. An acquisition that does not wait for the lock is
// retried for failoverTime: otherwise each failover of the service, or of its Redis
// nodes, would be an error for the caller.
func (a *acquisition) again(err error, elapsed time.Duration) bool {
	if final(err) || a.settings.try && (elapsed >= failoverTime || !transient(err) && !matches(err, ErrLost)) {
		return false
	}
	a.reportWaiting(err)
	return true
}

// askOnce asks the service once, with the nonce of the attempt whose outcome is
// open if there is one.
func (a *acquisition) askOnce(ctx context.Context, record *holderRecord) (*Lease, error) {
	if a.keepAlive != nil && a.keepAlive.isOver() {
		a.leave()
	}
	if a.keepAlive == nil {
		a.keepAlive = a.client.joinKeepAlive(a.settings.timing, a.settings.fixed)
	}
	k := a.keepAlive
	if err := k.open(ctx); err != nil {
		return nil, err
	}
	if a.nonce == 0 {
		a.nonce = k.newNonce()
	}
	request := a.settings.request
	request.Nonce = a.nonce
	if a.settings.fixed || a.client.hooks.Waiting != nil {
		a.queued.Store(false)
		request.Queued = a.reportQueued
	}
	before := a.began
	if a.asked || a.settings.reentrant { // it has waited since then
		before = a.client.clock.Now()
	}
	a.asked = true
	grant, err := k.session.Acquire(ctx, request)
	if err != nil {
		switch {
		case ctx.Err() != nil: // the caller left before the answer, whatever the error says
		case errors.Is(err, engine.ErrLost):
			k.endSession(err)
			a.endAttempt(err)
		case engine.Refused(err):
			a.endAttempt(err)
		}
		return nil, err
	}
	request.Queued = nil
	g := &heldGrant{keepAlive: k, nonce: a.nonce, request: request, named: a.settings.named, grant: grant, sent: grant.Sent, record: record}
	if g.sent.IsZero() {
		g.sent = before
	}
	a.nonce = 0
	a.client.holders.add(g)
	a.granted = a.client.clock.Now()
	l, err := k.accept(a.values, g, a.granted)
	if err != nil {
		a.client.holders.remove(g)
		a.granted = engine.Instant{}
		return nil, err
	}
	if a.settings.fixed && a.queued.Load() {
		_ = k.renew(ctx) // the TTL of a lease without renewal starts now, not at the last keep-alive
	}
	return l, nil
}

// reportQueued is the callback for an attempt that was queued.
func (a *acquisition) reportQueued() {
	a.queued.Store(true)
	a.reportWaiting(nil)
}

// reportWaiting has the hook called.
func (a *acquisition) reportWaiting(err error) {
	if hook := a.client.hooks.Waiting; hook != nil {
		event := a.event(err)
		a.waiting.add(func() { hook(a.values, event) })
	}
}

// leave ends the open attempt, if any, and the use of the session.
func (a *acquisition) leave() {
	if a.keepAlive == nil {
		return
	}
	a.endAttempt(nil)
	now := a.granted
	if now.IsZero() || a.settings.fixed { // a renewal may have followed the grant
		now = a.client.clock.Now()
	}
	a.client.leaveKeepAlive(a.keepAlive, now)
	a.keepAlive = nil
}

func (a *acquisition) endAttempt(err error) {
	if a.nonce != 0 {
		a.keepAlive.endAttempt(a.nonce, err)
		a.nonce = 0
	}
}

// explain returns the error for the caller: why the waiting ended, and the last
// error of the service.
func (a *acquisition) explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return err
	}
	interrupted := errors.Is(err, ctx.Err()) || errors.Is(err, cause)
	var limit waitLimit
	switch {
	case errors.As(cause, &limit) && interrupted:
		return fmt.Errorf("%w: waited %v", engine.ErrHeld, time.Duration(limit))
	case errors.As(cause, &limit): // the service did not answer
		return fmt.Errorf("%w; gave up after %v", err, time.Duration(limit))
	case interrupted:
		return cause
	}
	return fmt.Errorf("%w (last: %w)", cause, err)
}

// waitLimit is the cause of a context that ended because the limit of WithWaitLimit
// passed.
type waitLimit time.Duration

// Error returns the limit.
func (w waitLimit) Error() string { return fmt.Sprintf("waited %v", time.Duration(w)) }

// reportAcquired calls the hook. If the hook panics, it releases the lease, which the
// caller does not get.
func (a *acquisition) reportAcquired(ctx context.Context, l *Lease) {
	returned := false
	defer func() {
		if !returned {
			_ = l.Release(ctx)
		}
	}()
	event := a.event(nil)
	event.Token, event.Mode = l.Token(), l.Mode()
	a.client.hooks.Acquired(ctx, event)
	returned = true
}

func (a *acquisition) event(err error) Event {
	return Event{Resources: a.settings.request.Resources, Holder: a.settings.request.Holder, Mode: a.settings.request.Mode,
		Elapsed: a.client.clock.Now().Since(a.began), Err: err}
}
