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
	"github.com/leased-project/leased/lease/engine"
)

// How long a waiting Acquire pauses before it asks a failing service again.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// Client takes leases from a Backend and keeps them alive. Leases with equal
// timings share one session and one keep-alive, however many they are. All
// methods may be called concurrently. Close it when done.
type Client struct {
	backend  engine.Backend
	source   engine.TopologySource // nil if the backend has no policies of its own
	policies engine.Policies
	clock    engine.Clock
	onClose  []func(context.Context) error
	hooks    Hooks
	name     string
	holders  holders

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	untold  error          // why the service could not be told of the end
	work    sync.WaitGroup // calls and goroutines; grows only while not closed
	keepers map[timing]*keeper
}

// New returns a Client on a backend. If the backend is a TopologySource the timings
// of a lock are those of its policy there.
func New(backend engine.Backend, options ...Option) (*Client, error) {
	if backend == nil {
		return nil, fmt.Errorf("%w: the backend is nil", engine.ErrInvalid)
	}
	host, _ := os.Hostname() // a name for people; without it the process id must do
	c := &Client{backend: backend, clock: engine.SystemClock(), name: fmt.Sprintf("%s:%d", host, os.Getpid()), keepers: map[timing]*keeper{}}
	c.source, _ = backend.(engine.TopologySource)
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

// Acquire takes the lock on a resource. It waits while others hold it, and
// while the service is out of reach, until ctx ends or the wait limit passes.
// The errors of this package say what else can happen.
func (c *Client) Acquire(ctx context.Context, resource fencing.Resource, options ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, resource, false, options)
}

// TryAcquire takes the lock if it is free, and returns ErrHeld if it is not. It
// asks once: a service that is out of reach is an error.
func (c *Client) TryAcquire(ctx context.Context, resource fencing.Resource, options ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, resource, true, options)
}

// Do runs work under a lease. The context given to work ends when ctx does or
// the lease is lost; work must then stop. Do returns what work returns, joined
// with the loss if the lease was lost before work returned: what it wrote past
// that point is refused by a gate, and unprotected without one.
func (c *Client) Do(ctx context.Context, resource fencing.Resource, work func(context.Context, *Lease) error, options ...AcquireOption) error {
	l, err := c.Acquire(ctx, resource, options...)
	if err != nil {
		return err
	}
	err, lost := under(ctx, l, work)
	if lost != nil {
		lost = fmt.Errorf("work under %q: %w", string(resource), lost)
	}
	return errors.Join(err, lost)
}

// under runs work with a context that ends with ctx and with the lease, then
// releases the lease. It returns what work did, and why the lease had ended
// before work was done, nil if it had not.
func under(ctx context.Context, l *Lease, work func(context.Context, *Lease) error) (err, lost error) {
	workCtx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	defer func() {
		stop()
		cancel(nil)
		_ = l.Release(ctx) // if it fails it is tried again, and the hooks are told
	}()
	err = work(workCtx, l)
	if lost = l.Err(); errors.Is(lost, engine.ErrReleased) {
		lost = nil
	}
	return err, lost
}

// Inspect tells who holds the lock and who waits for it.
func (c *Client) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	if err := resource.Validate(); err != nil {
		return engine.Status{}, err
	}
	return c.backend.Inspect(ctx, resource)
}

// Break takes a lease away from its holder, by order of an operator.
func (c *Client) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	return c.backend.Break(ctx, resource, token)
}

// Close releases every lease of the client and waits until the service is told
// or ctx ends. If it could not be told, what it still holds runs out by itself,
// and the error says so. Leases and calls that are under way end with ErrClosed.
// Then it runs the functions of WithOnClose, once.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	onClose := c.onClose
	c.onClose = nil
	c.mu.Unlock()
	c.cancel(ErrClosed)
	err := c.settle(ctx)
	for _, f := range onClose {
		err = errors.Join(err, f(ctx))
	}
	return err
}

// settle waits until the service is told of the end of every session.
func (c *Client) settle(ctx context.Context) error {
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("close client: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.untold != nil {
		return fmt.Errorf("close client: the service does not know yet, and its leases run out by themselves: %w", c.untold)
	}
	return nil
}

// notTold notes that a session of a client that is being closed could not be
// closed.
func (c *Client) notTold(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.untold = errors.Join(c.untold, err)
	}
}

func (c *Client) acquire(ctx context.Context, resource fencing.Resource, try bool, options []AcquireOption) (*Lease, error) {
	p, err := c.plan(resource, try, options)
	if err != nil {
		return nil, fmt.Errorf("acquire %q: %w", string(resource), err)
	}
	if !c.enter() {
		return nil, ErrClosed
	}
	defer c.work.Done()

	waitCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	if p.waitLimit > 0 {
		limit := time.AfterFunc(p.waitLimit, func() { cancel(waitLimit(p.waitLimit)) })
		defer limit.Stop()
	}
	a := &acquisition{client: c, plan: p, began: c.clock.Now(), values: ctx}
	l, err := a.begin(waitCtx)
	if err != nil {
		return nil, fmt.Errorf("acquire %q: %w", string(resource), err)
	}
	emit(c.hooks.Acquired, Event{Resources: p.request.Resources, Holder: l.Holder(), Token: l.Token(), Mode: l.Mode(),
		Elapsed: c.clock.Now().Since(a.began)})
	return l, nil
}

// enter counts a call, unless the client is closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Add(1)
	return true
}

// background runs f on a goroutine that Close waits for. The caller is itself
// counted, so that Close cannot have finished.
func (c *Client) background(f func()) {
	c.work.Go(f)
}

// keeper is the one that serves these timings, with one more user; the caller
// calls leave when done. A fixed lease has a keeper of its own.
func (c *Client) keeper(t timing, fixed bool) *keeper {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.keepers[t]
	if k == nil || fixed {
		k = newKeeper(c, t, fixed)
	}
	if !fixed {
		c.keepers[t] = k
	}
	k.mu.Lock()
	k.users++
	k.mu.Unlock()
	return k
}

// leave is the other end of keeper.
func (c *Client) leave(k *keeper) {
	k.mu.Lock()
	k.users--
	k.used = c.clock.Now()
	k.mu.Unlock()
	if k.fixed {
		k.poke() // nobody else will use it
	}
}

// drop takes k out of use: no new acquisition will find it.
func (c *Client) drop(k *keeper) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keepers[k.timing] == k {
		delete(c.keepers, k.timing)
	}
}

// retire drops k if nothing needs it, and says whether it did. Both locks are
// held, so that no acquisition can slip in between.
func (c *Client) retire(k *keeper) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone == nil && (k.users > 0 || len(k.holds) > 0) {
		return false
	}
	if k.gone == nil {
		k.gone = engine.ErrReleased
	}
	if c.keepers[k.timing] == k {
		delete(c.keepers, k.timing)
	}
	return true
}

// sleep waits for d, or until ctx ends, and then returns its cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause is how long to wait before try number n, with jitter against herds.
func pause(n int) time.Duration {
	d := min(minPause<<min(n, 10), maxPause)
	return d/2 + rand.N(d/2)
}
