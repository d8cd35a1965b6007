package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// topologyTimeout is how long a call waits for a newer topology after an answer showed
// that the known one is stale.
const topologyTimeout = time.Second

// acquisition is one call of Acquire or TryAcquire: it does what the core decides.
type acquisition struct {
	client   *Client
	settings acquireSettings
	core     clientcore.Call
	values   context.Context // of the hook Start; for the lease's context and the hooks
	call     call
	reroute  context.CancelCauseFunc // ends an ask that waits in efficiency mode; guarded by the Client's mu
	queued   atomic.Bool
	waiting  hookQueue // calls of the hook Waiting
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
// one, and otherwise asks the engine. ctx ends when the caller no longer waits.
func (a *acquisition) run(ctx context.Context) (l *Lease, err error) {
	a.core.Request, a.core.Try, a.core.Owner = &a.settings.request, a.settings.try, a
	if err := a.learnPolicies(ctx); err != nil {
		return nil, err
	}
	var record *holderRecord
	if a.settings.reentrant {
		a.queued.Store(true) // behind another call of the holder
		if record, l, err = a.client.holders.begin(ctx, a.values, &a.settings); l != nil || err != nil {
			return l, err
		}
		defer a.client.holders.end(record)
	}
	for {
		if l, err = a.ask(ctx, record); err == nil {
			return l, nil
		}
		if err = a.failed(ctx, err); err != nil {
			a.leave()
			return nil, err
		}
	}
}

// failed passes a failure to the core and waits for the pause that the core returns. It
// returns the error for the caller if the core gives up or ctx ends.
func (a *acquisition) failed(ctx context.Context, err error) error {
	c := a.client
	var v clientcore.Verdict
	c.update(func(now engine.Instant) []*clientcore.Grant {
		v = c.core.Failed(&a.core, now, err, ctx.Err() != nil)
		if s := a.core.Session(); s != nil && s.Over() != nil {
			s.Owner.(*keepAlive).wakeUp()
		}
		return v.Ended
	})
	if !v.Again {
		return v.Err
	}
	a.reportWaiting(v.Err)
	if v.Newer {
		c.awaitTopology(ctx, v.Version)
		if err := c.applyPolicies(&a.settings); err != nil { // the policy may have another TTL in the other mode
			return err
		}
	}
	if engine.Sleep(ctx, v.Pause) != nil {
		return v.Err
	}
	return nil
}

// begin returns the session for the next ask, open, the context of the ask, and the request to send. A wait in
// efficiency mode ends when its lock is served elsewhere.
func (a *acquisition) begin(ctx context.Context) (*keepAlive, context.Context, engine.Request, error) {
	c := a.client
	c.syncTopology()
	for {
		now := c.clock.Now()
		c.mu.Lock()
		former := a.core.Session()
		s, err := c.core.Route(&a.core, now, a.settings.timing, a.settings.fixed)
		if former != nil && former != a.core.Session() {
			former.Owner.(*keepAlive).wakeUp() // the attempt is to be released
		}
		if err != nil {
			c.mu.Unlock()
			return nil, nil, engine.Request{}, err
		}
		k := c.keepAliveOf(s)
		if s.IsOpen() {
			request := c.core.Ask(&a.core, now)
			if s.Key().Mode == engine.Efficiency && !a.settings.try {
				ctx, a.reroute = context.WithCancelCause(ctx)
			}
			c.mu.Unlock()
			return k, ctx, request, nil
		}
		c.mu.Unlock()
		if err := k.open(ctx); err != nil {
			return nil, nil, engine.Request{}, err
		}
	}
}

// ask asks the engine once.
func (a *acquisition) ask(ctx context.Context, record *holderRecord) (*Lease, error) {
	c := a.client
	a.queued.Store(false)
	k, asking, request, err := a.begin(ctx)
	if err != nil {
		return nil, err
	}
	if a.settings.fixed || a.settings.waitLimit != 0 || c.hooks.Waiting != nil {
		request.Queued = a.reportQueued
	}
	answer, err := k.session.Acquire(asking, request)
	if asking != ctx {
		if err != nil && ctx.Err() == nil && errors.Is(context.Cause(asking), clientcore.ErrRerouted) {
			err = clientcore.ErrRerouted
		}
		a.reroute(nil)
	}
	if err != nil && clientcore.Matches(context.Cause(ctx), ErrUnavailable, ErrForbidden, ErrLimit) { // err may be this
		err = fmt.Errorf("%w: %w", engine.ErrUncertain, err)
	}
	if err != nil {
		return nil, err
	}
	g := &heldGrant{keepAlive: k, kind: request.Kind, permits: request.Permits, named: a.settings.named,
		mode: answer.Mode, slot: answer.Slot, record: record}
	g.Owner = g
	now := c.clock.Now()
	c.mu.Lock()
	if err = c.core.Granted(&a.core, now, &g.Grant, answer); err != nil {
		c.mu.Unlock()
		k.wakeUp() // it is to be released
		return nil, err
	}
	c.holders.add(g)
	l := g.add(&g.first, a.values)
	if now.Until(g.Deadline()) < time.Second {
		k.wakeUp() // otherwise run wakes up early enough
	}
	if !a.settings.fixed {
		c.core.Leave(&a.core, now)
		c.mu.Unlock()
		return l, nil
	}
	c.mu.Unlock()
	if a.queued.Load() {
		_, _ = k.renewNow(ctx) // the TTL of a lease without renewal starts now, not at the last renewal
	}
	a.leave()
	return l, nil
}

// reportQueued is the callback for an attempt that was queued.
func (a *acquisition) reportQueued() {
	a.queued.Store(true)
	a.reportWaiting(nil)
}

// reportWaiting queues a call of the hook Waiting.
func (a *acquisition) reportWaiting(err error) {
	if hook := a.client.hooks.Waiting; hook != nil {
		event := a.event(err)
		a.waiting.add(func() { hook(a.values, event) })
	}
}

// leave ends the open attempt, if any, and the use of the session.
func (a *acquisition) leave() {
	c := a.client
	s := a.core.Session()
	if s == nil {
		return
	}
	now := c.clock.Now()
	c.mu.Lock()
	c.core.Leave(&a.core, now)
	c.mu.Unlock()
	if s.Owner != nil {
		s.Owner.(*keepAlive).wakeUp()
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
	case errors.As(cause, &limit) && interrupted && a.queued.Load():
		return fmt.Errorf("%w: waited %v", engine.ErrHeld, time.Duration(limit))
	case errors.As(cause, &limit): // the service did not answer
		if interrupted && !unanswered(err) {
			err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
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
		Elapsed: a.client.clock.Now().Since(a.core.Began), Err: err}
}
