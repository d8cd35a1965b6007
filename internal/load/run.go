package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// openers is how many clients are opened at once.
	openers = 16
	// pauseAfterError keeps a worker from spinning while the service is down.
	pauseAfterError = 5 * time.Millisecond
	// drainTime limits the last operations of the workers, and the closing of the clients.
	drainTime = 30 * time.Second
	// endTime is how long workers may take to end after their context has ended. Some client
	// libraries have no contexts.
	endTime = 5 * time.Second
	// showInterval is the time between two updates of the progress.
	showInterval = 200 * time.Millisecond
)

// Options of a run. All functions may be nil.
type Options struct {
	// Prefix begins the name of every lock.
	Prefix string
	// WarmUp is the time before the measurement, and Length the measured time.
	WarmUp, Length time.Duration
	// Ready is called when all clients are open; the workers start when it returns.
	Ready func()
	// Begin is called when the measured time begins, and End when it ends. In a [Hold],
	// all locks are held until End returns.
	Begin, End func()
	// Granted is called for each grant, within the warm-up too, while the lock is held.
	Granted func(Grant)
	// Abandon leaves the locks of a [Hold] to the end of their sessions instead of releasing
	// each. Run then ignores errors of closing the clients, since a service that ends many
	// locks at once may not answer in time.
	Abandon bool
	// AtOnce bounds the workers of a [Hold] that acquire at the same time; 0 is all.
	AtOnce int
	// Progress shows the number of pairs and the time left; it may be nil.
	Progress *progress.Line
}

// Grant is one acquisition of a worker.
type Grant struct {
	Worker int
	Token  uint64
	// Requested is when the worker asked for the lock, and At when it had it.
	Requested, At time.Time
}

// The phases of a run.
const (
	warmingUp = iota
	measuring
	stopping
)

// runner is the state that the workers of a run share.
type runner struct {
	Options
	clients []Client
	phase   atomic.Int32
	started time.Time
	// measured is when the measured time of a loop began. Only Run's goroutine uses it.
	measured time.Time

	pairs, failures atomic.Int64
	firstError      atomic.Pointer[string]
	acquire, pair   *Histogram
	grants          []atomic.Int64 // of each worker
}

// Run does the work against the target. It returns an error if no client can be opened,
// or if ctx ends; operations that fail are counted in the result.
func Run(ctx context.Context, target Target, work Work, options Options) (result Result, err error) {
	if err := work.validate(); err != nil {
		return Result{}, err
	}
	r := &runner{Options: options, grants: make([]atomic.Int64, work.Workers), started: time.Now(),
		acquire: new(Histogram), pair: new(Histogram)}
	defer func() {
		if closed := r.close(ctx); !r.Abandon {
			err = errors.Join(err, closed)
		}
	}()
	if err := r.open(ctx, target, work.Clients); err != nil {
		return Result{}, err
	}
	call(r.Ready)
	var elapsed time.Duration
	switch work.Kind {
	case Own:
		elapsed, err = r.loop(ctx, work.Workers, func(worker int) string { return r.Prefix + strconv.Itoa(worker) })
	case Contended:
		elapsed, err = r.loop(ctx, work.Workers, func(int) string { return r.Prefix + "contended" })
	case Hold:
		elapsed, err = r.hold(ctx, work)
	}
	return r.result(elapsed), err
}

// open opens the clients, several at once, since a service may need a round trip for each session.
func (r *runner) open(ctx context.Context, target Target, n int) error {
	clients := make([]Client, n)
	err := each(min(n, openers), func(opener int) error {
		for i := opener; i < n; i += openers {
			var err error
			if clients[i], err = target(ctx); err != nil {
				clients[i] = nil
				return fmt.Errorf("open client %d of %d: %w", i+1, n, err)
			}
		}
		return nil
	})
	r.clients = slices.DeleteFunc(clients, func(c Client) bool { return c == nil })
	return err
}

func call(hook func()) {
	if hook != nil {
		hook()
	}
}

// loop runs workers that acquire and release until the measured time is over.
func (r *runner) loop(ctx context.Context, workers int, name func(worker int) string) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	releasing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { r.work(ctx, releasing, i, name(i)) })
	}
	err := r.wait(ctx, r.WarmUp)
	call(r.Begin)
	begin := time.Now()
	r.measured = begin
	r.phase.Store(measuring)
	if err == nil {
		err = r.wait(ctx, r.Length)
	}
	r.phase.Store(stopping)
	elapsed := time.Since(begin)
	call(r.End)
	ended := within(wg.Wait)
	select {
	case <-ended:
		return elapsed, err
	case <-time.After(drainTime):
	case <-ctx.Done():
	}
	cancel()
	select { // releases may still end
	case <-ended:
		return elapsed, err
	case <-time.After(endTime):
	}
	stop()
	select {
	case <-ended:
		return elapsed, err
	case <-time.After(endTime):
		return elapsed, errors.Join(err, errors.New("some operations did not end after the run; their locks may stay held "+
			"until their sessions expire"))
	}
}

// within calls a function in the background, and closes the channel when it returns.
func within(f func()) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		f()
		close(ended)
	}()
	return ended
}

// work is the loop of one worker. Releases have their own context, so a run that
// ends leaves no lock held.
func (r *runner) work(ctx, releasing context.Context, worker int, name string) {
	for r.phase.Load() != stopping && ctx.Err() == nil {
		held, start, err := r.take(ctx, worker, name)
		if err != nil {
			r.failed(ctx, err)
			continue
		}
		if err := held.Release(releasing); err != nil {
			r.failed(ctx, err)
			continue
		}
		if r.phase.Load() == measuring {
			r.pair.Observe(time.Since(start))
			r.pairs.Add(1)
		}
	}
}

// take acquires a lock for a worker, and counts the grant.
func (r *runner) take(ctx context.Context, worker int, name string) (held Held, start time.Time, err error) {
	start = time.Now()
	if held, err = r.clients[worker%len(r.clients)].Acquire(ctx, name); err != nil {
		return held, start, err
	}
	acquired := time.Now()
	if r.Granted != nil {
		r.Granted(Grant{worker, held.Token, start, acquired})
	}
	if r.phase.Load() == measuring {
		r.acquire.Observe(acquired.Sub(start))
		r.grants[worker].Add(1)
	}
	return held, start, nil
}

// failed counts a failed operation, and waits a little.
func (r *runner) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if r.phase.Load() == measuring {
		r.failures.Add(1)
	}
	text := err.Error()
	r.firstError.CompareAndSwap(nil, &text)
	_ = engine.Sleep(ctx, pauseAfterError)
}

// wait waits for a time, or until ctx ends, and shows the progress.
func (r *runner) wait(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		r.Progress.Show(r.state() + progress.Until(r.WarmUp+r.Length, time.Since(r.started)))
		_ = engine.Sleep(ctx, min(left, showInterval))
	}
	return ctx.Err()
}

// state describes the phase: the pairs, their average rate and the failed operations.
func (r *runner) state() string {
	if r.phase.Load() == warmingUp {
		return "warming up, "
	}
	rate := Result{Pairs: r.pairs.Load(), Elapsed: time.Since(r.measured)}.Rate()
	return fmt.Sprintf("%d pairs, %.0f/s, %d errors, ", r.pairs.Load(), rate, r.failures.Load())
}

func (r *runner) result(elapsed time.Duration) Result {
	result := Result{Pairs: r.pairs.Load(), Elapsed: elapsed, Acquire: r.acquire, Pair: r.pair,
		Errors: r.failures.Load()}
	for i := range r.grants {
		result.Grants = append(result.Grants, r.grants[i].Load())
	}
	if text := r.firstError.Load(); text != nil {
		result.FirstError = *text
	}
	return result
}

// close closes all clients at once: a service may need a round trip for each session.
func (r *runner) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	var err error
	select {
	case <-within(func() { err = each(len(r.clients), func(i int) error { return r.clients[i].Close(ctx) }) }):
		return err
	case <-time.After(drainTime + endTime):
		return errors.New("some clients did not close; their locks may stay held until their sessions expire")
	}
}
