package lease

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Hooks observe a Client, for metrics, traces and logs; the package itself logs
// nothing. Every field may be nil. A hook runs with no mutex held, and may call the
// Client except for Close, which waits for hooks. A panic in a hook is not recovered.
//
// Waiting runs on a goroutine of its call, which waits for it before Acquired or Failed.
// Lost runs on a goroutine that serves the whole Client. The others run on the goroutine
// that does the work. So a slow hook delays the caller, or the next Lost, but no renewal.
//
// Each call of Acquire or TryAcquire is reported once as Start, and once as Acquired or
// Failed. Each lease is reported once as Acquired, and once as Lost or Released. Except
// for Start, the context of a hook has the values of the context that Start returned,
// and may have ended.
type Hooks struct {
	// Start is called when Acquire or TryAcquire begins. It returns ctx, or a context
	// derived from it: the calls to the engine, the context of the lease and the
	// work of Do and Elect use it.
	Start func(ctx context.Context, resources []fencing.Resource) context.Context
	// Waiting is called when an attempt has to queue, and when an attempt failed
	// and is retried; Err is then the failure.
	Waiting func(context.Context, Event)
	// Acquired is called when a lease was granted or re-entered. Elapsed is the
	// time since Start.
	Acquired func(context.Context, Event)
	// Failed is called when Acquire or TryAcquire returns an error, which is Err.
	// Elapsed is the time since Start.
	Failed func(context.Context, Event)
	// Lost is called when a lease ended other than by Release. Err says why, and Code
	// of Err is "expired", "taken", "not-held", "lost", "uncertain" or "closed".
	Lost func(context.Context, Event)
	// Released is called when the holder released a lease. Err is nil if the
	// service confirmed it; otherwise the release is retried in the background.
	Released func(context.Context, Event)
	// Renewed is called when a keep-alive was answered or failed.
	Renewed func(Renewal)
}

// Event describes what happened to one lease or attempt.
type Event struct {
	Resources []fencing.Resource
	Holder    string
	Token     fencing.Token // None before the grant
	Mode      Mode          // AnyMode if it is not known yet
	Elapsed   time.Duration // since Start, or for Lost and Released since the grant
	Err       error
}

// Renewal describes one keep-alive, which serves all leases of a session.
type Renewal struct {
	Session engine.SessionID
	Leases  int
	Elapsed time.Duration // from before it was sent until the answer
	Err     error         // nil if every lease was extended
}

// hookQueue calls hooks in order, on a goroutine of its own. The goroutine that reports an
// event must not wait for them: it may be the one that renews leases, or the one that
// receives what the service sends.
type hookQueue struct {
	mu     sync.Mutex
	calls  []func()
	idle   chan struct{} // closed when all calls have returned; nil if there are none
	closed bool
}

// add queues a hook call, unless the queue is closed.
func (q *hookQueue) add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.calls = append(q.calls, call)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

func (q *hookQueue) run() {
	for {
		q.mu.Lock()
		if len(q.calls) == 0 {
			close(q.idle)
			q.idle = nil
			q.mu.Unlock()
			return
		}
		call := q.calls[0]
		q.calls = q.calls[1:]
		q.mu.Unlock()
		call()
	}
}

// close waits until all hooks have returned. No further one is called.
func (q *hookQueue) close() {
	q.mu.Lock()
	q.closed = true
	idle := q.idle
	q.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// joinHooks returns hooks that call those of a, then those of b.
func joinHooks(a, b Hooks) Hooks {
	events := func(a, b func(context.Context, Event)) func(context.Context, Event) {
		return join(a, b, func(ctx context.Context, e Event) { a(ctx, e); b(ctx, e) })
	}
	return Hooks{
		Start: join(a.Start, b.Start, func(ctx context.Context, resources []fencing.Resource) context.Context {
			return b.Start(a.Start(ctx, resources), resources)
		}),
		Waiting:  events(a.Waiting, b.Waiting),
		Acquired: events(a.Acquired, b.Acquired),
		Failed:   events(a.Failed, b.Failed),
		Lost:     events(a.Lost, b.Lost),
		Released: events(a.Released, b.Released),
		Renewed:  join(a.Renewed, b.Renewed, func(r Renewal) { a.Renewed(r); b.Renewed(r) }),
	}
}

// join returns the function that calls both a and b, or the one of them that is not nil.
func join[F any](a, b, both F) F {
	switch {
	case reflect.ValueOf(a).IsNil():
		return b
	case reflect.ValueOf(b).IsNil():
		return a
	}
	return both
}
