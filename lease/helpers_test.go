package lease_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/memory"
)

const ttl = 10 * time.Second

// validity is how long a lease of that TTL lasts: the TTL minus the default drift.
const validity = ttl - ttl/100 - 2*time.Millisecond

// taps intercept the calls to a backend.
type taps struct {
	open func(ctx context.Context, config engine.SessionConfig,
		next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error)
	acquire func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error)
	renew   func(ctx context.Context, next renewFunc) ([]engine.Nonce, error)
	release func(ctx context.Context, n engine.Nonce, next releaseFunc) error
	update  func(ctx context.Context, next func(context.Context) error) error
	closing func(ctx context.Context, next func(context.Context) error) error
	// breaking replaces Break.
	breaking func(ctx context.Context, name fencing.Resource, token fencing.Token) error
}

type (
	acquireFunc = func(context.Context, engine.Request) (engine.Grant, error)
	renewFunc   = func(context.Context) ([]engine.Nonce, error)
	releaseFunc = func(context.Context, engine.Nonce) error
)

// tapped is a backend whose calls go through taps.
type tapped struct {
	engine.Backend
	mu   sync.Mutex
	taps taps
}

type tappedSession struct {
	engine.Session
	backend *tapped
}

func (b *tapped) now() taps {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taps
}

func (b *tapped) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	open := b.Backend.Open
	if tap := b.now().open; tap != nil {
		open = func(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
			return tap(ctx, config, b.Backend.Open)
		}
	}
	s, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	return &tappedSession{Session: s, backend: b}, nil
}

func (b *tapped) Break(ctx context.Context, name fencing.Resource, token fencing.Token) error {
	if tap := b.now().breaking; tap != nil {
		return tap(ctx, name, token)
	}
	return b.Backend.Break(ctx, name, token)
}

func (s *tappedSession) Acquire(ctx context.Context, r engine.Request) (engine.Grant, error) {
	if tap := s.backend.now().acquire; tap != nil {
		return tap(ctx, r, s.Session.Acquire)
	}
	return s.Session.Acquire(ctx, r)
}

func (s *tappedSession) Renew(ctx context.Context, held ...engine.Held) ([]engine.Nonce, error) {
	next := func(ctx context.Context) ([]engine.Nonce, error) { return s.Session.Renew(ctx, held...) }
	if tap := s.backend.now().renew; tap != nil {
		return tap(ctx, next)
	}
	return next(ctx)
}

func (s *tappedSession) Release(ctx context.Context, held engine.Held) error {
	next := func(ctx context.Context, _ engine.Nonce) error { return s.Session.Release(ctx, held) }
	if tap := s.backend.now().release; tap != nil {
		return tap(ctx, held.Nonce, next)
	}
	return next(ctx, held.Nonce)
}

func (s *tappedSession) Update(ctx context.Context, held engine.Held) error {
	next := func(ctx context.Context) error { return s.Session.Update(ctx, held) }
	if tap := s.backend.now().update; tap != nil {
		return tap(ctx, next)
	}
	return next(ctx)
}

func (s *tappedSession) Close(ctx context.Context, held ...engine.Held) error {
	next := func(ctx context.Context) error { return s.Session.Close(ctx, held...) }
	if tap := s.backend.now().closing; tap != nil {
		return tap(ctx, next)
	}
	return next(ctx)
}

// setup is a memory backend with taps and a client on it, inside a synctest bubble.
type setup struct {
	*testing.T
	memory *memory.Backend
	tapped *tapped
	clock  *leasetest.Clock
	client *lease.Client
	// tolerant allows Close of the client to fail.
	tolerant bool
	events   *recorder
}

func newSetup(t *testing.T, options ...lease.Option) *setup {
	t.Helper()
	memory, err := memory.New()
	require.NoError(t, err)
	s := &setup{T: t, memory: memory, tapped: &tapped{Backend: memory}, clock: leasetest.NewClock(), events: &recorder{}}
	options = append([]lease.Option{lease.WithClock(s.clock), lease.WithHooks(s.events.hooks()), lease.WithName("tester")},
		options...)
	s.client, err = lease.New(s.tapped, options...)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.client.Close(context.Background()); !s.tolerant {
			require.NoError(t, err)
		}
	})
	return s
}

func (s *setup) acquire(options ...lease.AcquireOption) *lease.Lease {
	s.Helper()
	l, err := s.client.Acquire(s.Context(), "a", options...)
	require.NoError(s, err)
	return l
}

// tap changes how calls to the service are intercepted from now on.
func (s *setup) tap(change func(*taps)) {
	s.tapped.mu.Lock()
	defer s.tapped.mu.Unlock()
	change(&s.tapped.taps)
}

// counter counts calls on any goroutine.
type counter = atomic.Int64

// other returns a second client, without taps.
func (s *setup) other() *lease.Client {
	s.Helper()
	c, err := lease.New(s.memory, lease.WithClock(s.clock))
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, c.Close(context.Background())) })
	return c
}

// hookEvents are the events that the hooks reported.
type hookEvents struct {
	names    []string
	lost     []lease.Event
	waiting  []lease.Event
	released []lease.Event
	acquired []lease.Event
	failed   []lease.Event
	renewals []lease.Renewal
}

// recorder records the events of hooks, from any goroutine.
type recorder struct {
	mu       sync.Mutex
	recorded hookEvents
}

func (r *recorder) read() hookEvents {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorded
}

func (r *recorder) hooks() lease.Hooks {
	record := func(name string, list *[]lease.Event) func(context.Context, lease.Event) {
		return func(_ context.Context, event lease.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.recorded.names = append(r.recorded.names, name)
			*list = append(*list, event)
		}
	}
	return lease.Hooks{
		Waiting:  record("waiting", &r.recorded.waiting),
		Acquired: record("acquired", &r.recorded.acquired),
		Failed:   record("failed", &r.recorded.failed),
		Lost:     record("lost", &r.recorded.lost),
		Released: record("released", &r.recorded.released),
		Renewed: func(renewal lease.Renewal) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.recorded.renewals = append(r.recorded.renewals, renewal)
		},
	}
}
