package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// Client takes leases from a backend and keeps them alive. Leases with equal
// timings share one session and one keep-alive. All methods may be called
// concurrently. Close the Client when done.
type Client struct {
	backend  engine.Backend
	routed   engine.RoutedBackend // nil if the backend has no policies of its own
	policies engine.Policies
	clock    engine.Clock
	onClose  []func(context.Context) error
	hooks    Hooks
	name     string
	holders  holderRegistry

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	follow sync.Once // starts to follow the topology

	mu       sync.Mutex
	core     *clientcore.Core
	closed   bool
	closeErr error          // why sessions could not be closed at the service
	work     sync.WaitGroup // calls, and goroutines that a call or another goroutine started; Close waits for them
	losses   hookQueue      // calls of the hook Lost
	calls    map[*call]bool
}

// New returns a Client on a backend. If the backend has policies, a lock has the
// timings of its policy there. Programs that use a service call client.Dial
// instead, which calls New.
func New(backend engine.Backend, options ...Option) (*Client, error) {
	if backend == nil {
		return nil, fmt.Errorf("%w: the backend is nil", engine.ErrInvalid)
	}
	host, _ := os.Hostname() // without it the name is the process id alone
	c := &Client{backend: backend, clock: engine.SystemClock(), name: fmt.Sprintf("%s:%d", host, os.Getpid()),
		calls: map[*call]bool{}, core: clientcore.New(clientcore.Random{Jitter: rand.N[time.Duration],
			NewID: engine.NewSessionID})}
	c.routed, _ = backend.(engine.RoutedBackend)
	for _, option := range options {
		if err := option(c); err != nil {
			return nil, err
		}
	}
	if err := engine.ValidateHolder(c.name); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

// Acquire takes the lock on a resource. While others hold the lock, or the service
// is unavailable, it waits until ctx ends or the limit of WithWaitLimit passes.
func (c *Client) Acquire(ctx context.Context, resource fencing.Resource, options ...AcquireOption) (*Lease, error) {
	l, _, err := c.acquire(ctx, resource, false, options)
	return l, err
}

// TryAcquire takes the lock if it is free, and returns ErrHeld if it is not. It
// does not wait for the lock. If the service is unavailable it retries for a few
// seconds, so that a change of leader is not an error.
func (c *Client) TryAcquire(ctx context.Context, resource fencing.Resource, options ...AcquireOption) (*Lease, error) {
	l, _, err := c.acquire(ctx, resource, true, options)
	return l, err
}

// Do acquires a lease, runs work and releases the lease. The context of work ends
// when ctx ends or the lease is lost; work must then stop. Do returns the error of
// work. If the lease was lost before work returned, the error also matches
// ErrLost: a gate refuses what work wrote after the next holder's first write.
func (c *Client) Do(ctx context.Context, resource fencing.Resource, work func(context.Context, *Lease) error,
	options ...AcquireOption) error {
	l, ctx, err := c.acquire(ctx, resource, false, options)
	if err != nil {
		return err
	}
	err, lost := runUnder(ctx, l, work)
	if lost != nil {
		lost = fmt.Errorf("work under %q: %w", string(resource), lost)
	}
	return errors.Join(err, lost)
}

// runUnder runs work with a context that ends with ctx or with the lease, then
// releases the lease. It returns the error of work, and why the lease ended before
// work returned, nil if it did not.
func runUnder(ctx context.Context, l *Lease, work func(context.Context, *Lease) error) (err, lost error) {
	workCtx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	defer func() {
		stop()
		cancel(nil)
		_ = l.Release(ctx) // a failed release is retried in the background and reported to the hooks
	}()
	err = work(workCtx, l)
	if lost = l.Err(); errors.Is(lost, engine.ErrReleased) {
		lost = nil
	}
	return err, lost
}

// Inspect returns the holders and waiters of a lock.
func (c *Client) Inspect(ctx context.Context, resource fencing.Resource) (status Status, err error) {
	if err := resource.Validate(); err != nil {
		return Status{}, err
	}
	err = c.ask(ctx, func(ctx context.Context) error {
		status, err = c.backend.Inspect(ctx, resource)
		return err
	})
	return status, err
}

// Break ends the lease with this token, on behalf of an operator. It returns
// ErrNotHeld if the lock has no such holder. If the service does not answer, Break
// asks again, and returns nil when the lease is over, whatever has ended it. The
// holder's writes are refused from the next holder's first write on, not earlier.
func (c *Client) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	uncertain := false // an earlier call may have broken the lease
	return c.ask(ctx, func(ctx context.Context) error {
		err := c.backend.Break(ctx, resource, token)
		if uncertain && clientcore.Matches(err, ErrNotHeld) {
			return nil
		}
		uncertain = uncertain || errors.Is(err, engine.ErrUncertain)
		return err
	})
}

// Close releases every lease of the client and waits until the service confirms it
// or ctx ends. Leases that the service did not confirm end with their TTL; the
// error says so. Calls in progress return ErrClosed. Then Close runs the
// functions of WithOnClose, once.
func (c *Client) Close(ctx context.Context) error {
	var onClose []func(context.Context) error
	var sessions []*clientcore.Session
	c.update(func(engine.Instant) (ended []*clientcore.Grant) {
		c.closed = true
		onClose, c.onClose = c.onClose, nil
		for call := range c.calls {
			call.cancel(ErrClosed)
		}
		c.cancel(ErrClosed)
		sessions, ended = c.core.Close()
		return ended
	})
	for _, s := range sessions {
		if s.Owner != nil {
			s.Owner.(*keepAlive).wakeUp()
		}
	}
	err := c.awaitSessions(ctx)
	for _, f := range onClose {
		err = errors.Join(err, f(ctx))
	}
	return err
}

// awaitSessions waits until every session is closed.
func (c *Client) awaitSessions(ctx context.Context) error {
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("close client: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeErr != nil {
		return fmt.Errorf("close client: the service did not confirm it, so its leases end with their TTL: %w", c.closeErr)
	}
	return nil
}

// acquire implements Acquire and TryAcquire. It also returns the context of the hook
// Start, for work under the lease.
func (c *Client) acquire(ctx context.Context, resource fencing.Resource, try bool, options []AcquireOption) (*Lease,
	context.Context, error) {
	a := &acquisition{client: c}
	err := a.settings.set(c, resource, try, options)
	if c.hooks.Start != nil {
		ctx = c.hooks.Start(ctx, a.settings.request.Resources)
	}
	a.core.Began, a.values = c.clock.Now(), ctx
	var l *Lease
	if err == nil {
		l, err = a.wait(ctx)
	}
	if err != nil {
		err = fmt.Errorf("acquire %q: %w", string(resource), err)
		if c.hooks.Failed != nil {
			c.hooks.Failed(ctx, a.event(err))
		}
		return nil, ctx, err
	}
	if c.hooks.Acquired != nil {
		a.reportAcquired(ctx, l)
	}
	return l, ctx, nil
}

// call is a call in progress.
type call struct {
	cancel context.CancelCauseFunc // ends its context
}

// enter adds a call, and returns a context for it, which ends with ctx or with Close. The
// caller calls leave unless there is an error.
func (c *Client) enter(ctx context.Context, call *call) (context.Context, error) {
	ctx, call.cancel = context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		call.cancel(ErrClosed)
		return nil, ErrClosed
	}
	c.calls[call] = true
	c.work.Add(1)
	return ctx, nil
}

// leave removes a call and ends its context.
func (c *Client) leave(call *call) {
	c.mu.Lock()
	delete(c.calls, call)
	c.mu.Unlock()
	call.cancel(nil)
	c.work.Done()
}
