package lease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// fakeRouted is a RoutedBackend whose sessions do what the test says.
type fakeRouted struct {
	engine.Backend
	mu          sync.Mutex
	topology    engine.Topology
	changed     chan struct{}
	acquire     func(ctx context.Context, mode engine.Mode, r engine.Request) (engine.Grant, error)
	acquireIn   func(ctx context.Context, config engine.SessionConfig, r engine.Request) (engine.Grant, error)
	released    []engine.Held
	updated     []engine.Held
	failUpdate  func(held engine.Held) error
	renewed     []engine.Held
	asked       []engine.Mode
	failRelease bool // the first
}

func (b *fakeRouted) set(t engine.Topology) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topology = t
	close(b.changed)
	b.changed = make(chan struct{})
}

// releases returns the leases that were released.
func (b *fakeRouted) releases() []engine.Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.released
}

func (b *fakeRouted) Topology() engine.Topology {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topology
}
func (b *fakeRouted) AwaitTopology(context.Context) error { return nil }
func (b *fakeRouted) RefreshTopology()                    {}
func (b *fakeRouted) NextTopology(ctx context.Context, after uint64) (engine.Topology, error) {
	for {
		b.mu.Lock()
		t, changed := b.topology, b.changed
		b.mu.Unlock()
		if t.Version > after {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return engine.Topology{}, context.Cause(ctx)
		}
	}
}
func (b *fakeRouted) Open(_ context.Context, c engine.SessionConfig) (engine.Session, error) {
	return &fakeSession{b, c}, nil
}

type fakeSession struct {
	b *fakeRouted
	c engine.SessionConfig
}

func (s *fakeSession) Acquire(ctx context.Context, r engine.Request) (engine.Grant, error) {
	s.b.mu.Lock()
	s.b.asked = append(s.b.asked, s.c.Mode)
	s.b.mu.Unlock()
	if s.b.acquireIn != nil {
		return s.b.acquireIn(ctx, s.c, r)
	}
	return s.b.acquire(ctx, s.c.Mode, r)
}
func (s *fakeSession) Renew(_ context.Context, held ...engine.Held) (n []engine.Nonce, err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.renewed = held
	for _, h := range held {
		n = append(n, h.Nonce)
	}
	return n, nil
}
func (s *fakeSession) Update(_ context.Context, h engine.Held) error {
	s.b.mu.Lock()
	s.b.updated = append(s.b.updated, h)
	fail := s.b.failUpdate
	s.b.mu.Unlock()
	if fail != nil {
		return fail(h)
	}
	return nil
}
func (s *fakeSession) Release(_ context.Context, h engine.Held) error {
	s.b.mu.Lock()
	fail := s.b.failRelease
	s.b.failRelease = false
	s.b.mu.Unlock()
	if fail {
		time.Sleep(10 * time.Millisecond)
		return engine.ErrUncertain
	}
	return s.Close(context.Background(), h)
}
func (s *fakeSession) Close(_ context.Context, held ...engine.Held) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.released = append(s.b.released, held...)
	return nil
}

// topo returns a topology in which the lock a has a mode.
func topo(version uint64, mode engine.Mode) engine.Topology {
	policies, err := engine.NewPolicies(engine.Policy{Prefix: "a", Mode: mode})
	if err != nil {
		panic(err)
	}
	return engine.Topology{Version: version, Ready: true, Policies: policies,
		Fleet: engine.Fleet{Namespace: "n", Addresses: []string{"x:1"}, MaxTTL: time.Minute}}
}

func newRouted(t *testing.T, options ...Option) (*fakeRouted, *Client) {
	b := &fakeRouted{topology: topo(1, engine.Efficiency), changed: make(chan struct{})}
	c, err := New(b, append(options, WithClock(engine.MonotonicClock()))...)
	require.NoError(t, err)
	return b, c
}

// waitsForever is an acquire that waits until its caller leaves.
func waitsForever(ctx context.Context, _ engine.Mode, _ engine.Request) (engine.Grant, error) {
	<-ctx.Done()
	return engine.Grant{}, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
}

// A topology that another goroutine applies before the engine is asked ends the wait.
func TestRerouteBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newRouted(t)
		b.acquire = waitsForever
		defer c.Close(t.Context())
		a := &acquisition{client: c, values: t.Context()}
		require.NoError(t, a.settings.set(c, "a", false, nil))
		a.core.Began = c.clock.Now()
		a.core.Request, a.core.Owner = &a.settings.request, a
		ctx, err := c.enter(t.Context(), &a.call)
		require.NoError(t, err)
		defer c.leave(&a.call)
		require.NoError(t, a.learnPolicies(ctx))
		_, asking, _, err := a.begin(ctx)
		require.NoError(t, err)

		b.set(topo(2, engine.Correctness))
		synctest.Wait() // followTopology applies it
		require.EqualValues(t, 2, c.core.Topology().Version)

		a.leave()
		require.ErrorIs(t, context.Cause(asking), clientcore.ErrRerouted, "the call would wait in efficiency mode")
	})
}

// The pause between two tries grows while efficiency mode is not ready.
func TestPauseGrowsWhileNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b, c := newRouted(t, WithHooks(Hooks{Waiting: func(context.Context, Event) { n++ }}))
		notReady := topo(1, engine.Efficiency)
		notReady.Ready = false
		b.topology = notReady
		defer c.Close(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Acquire(ctx, "a")
		require.Error(t, err)
		require.Less(t, n, 200, "tries within a minute")
	})
}

// Close releases what an acquire under way was granted, or may have been granted.
func TestCloseReleasesAcquireUnderWay(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, c := newRouted(t)
			b.acquire = func(ctx context.Context, _ engine.Mode, r engine.Request) (engine.Grant, error) {
				<-ctx.Done()
				time.Sleep(time.Millisecond)
				if granted { // the answer was on its way
					return engine.Grant{Token: 1, Mode: engine.Efficiency, Sent: engine.MonotonicClock().Now(), Name: "n"}, nil
				}
				return engine.Grant{}, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
			}
			go c.Acquire(t.Context(), "a")
			synctest.Wait()
			require.NoError(t, c.Close(t.Context()))
			synctest.Wait()
			require.Len(t, b.releases(), 1, "granted: %v", granted)
		})
	}
}

// Extend sends the metadata of a lease to an engine without sessions only. A service that has it may refuse it: its
// limits may have been lowered since.
func TestExtendSendsNoMetadata(t *testing.T) {
	metadata := map[string]string{"build": "1234"}
	for mode, want := range map[engine.Mode]map[string]string{engine.Correctness: nil, engine.Efficiency: metadata} {
		synctest.Test(t, func(t *testing.T) {
			b, c := newRouted(t)
			defer c.Close(t.Context())
			b.topology = topo(1, mode)
			b.acquire = func(context.Context, engine.Mode, engine.Request) (engine.Grant, error) {
				return engine.Grant{Token: 1, Mode: mode, Sent: engine.MonotonicClock().Now(), Name: "n"}, nil
			}
			l, err := c.Acquire(t.Context(), "a", WithMetadata(metadata))
			require.NoError(t, err)
			require.NoError(t, l.Extend(t.Context(), time.Minute))
			require.NoError(t, l.SetMetadata(t.Context(), map[string]string{"build": "2"}))
			require.Len(t, b.updated, 2)
			require.Equal(t, want, b.updated[0].Metadata, mode)
			require.Equal(t, map[string]string{"build": "2"}, b.updated[1].Metadata)
		})
	}
}

// Renewals in efficiency mode carry the newest metadata that the service may have taken.
func TestRenewalsCarryTheNewestMetadata(t *testing.T) {
	for _, c := range []struct {
		name    string
		fail    error // of the first change
		another bool  // change of the metadata meanwhile
		want    string
	}{
		{"refused", engine.ErrLimit, false, "0"},
		{"uncertain", engine.ErrUncertain, false, "1"},
		{"refused after another change", engine.ErrLimit, true, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, client := newRouted(t)
				defer client.Close(t.Context())
				b.acquire = func(context.Context, engine.Mode, engine.Request) (engine.Grant, error) {
					return engine.Grant{Token: 1, Mode: engine.Efficiency, Sent: engine.MonotonicClock().Now(), Name: "n"}, nil
				}
				b.failUpdate = func(held engine.Held) error {
					if held.Metadata["step"] == "2" {
						return nil
					}
					time.Sleep(time.Second)
					return c.fail
				}
				l, err := client.Acquire(t.Context(), "a", WithMetadata(map[string]string{"step": "0"}))
				require.NoError(t, err)
				first := make(chan error, 1)
				go func() { first <- l.SetMetadata(t.Context(), map[string]string{"step": "1"}) }()
				synctest.Wait()
				if c.another {
					require.NoError(t, l.SetMetadata(t.Context(), map[string]string{"step": "2"}))
				}
				require.ErrorIs(t, <-first, c.fail)
				require.NoError(t, l.Renew(t.Context()))
				require.Equal(t, map[string]string{"step": c.want}, b.renewed[0].Metadata)
			})
		})
	}
}

// A call that waits for a lock is served after the lock has changed its mode, with the TTL that its policy has then.
func TestWaiterTakesTheTTLOfTheNewMode(t *testing.T) {
	topology := func(version uint64, mode engine.Mode, ttl time.Duration) engine.Topology {
		topology := topo(version, mode)
		var err error
		topology.Policies, err = engine.NewPolicies(engine.Policy{Prefix: "a", Mode: mode, TTL: ttl})
		require.NoError(t, err)
		return topology
	}
	synctest.Test(t, func(t *testing.T) {
		b, c := newRouted(t)
		defer c.Close(t.Context())
		b.set(topology(1, engine.Correctness, 5*time.Minute))
		b.acquireIn = func(ctx context.Context, config engine.SessionConfig, r engine.Request) (engine.Grant, error) {
			switch {
			case config.Mode == engine.Correctness:
				time.Sleep(time.Second)
				return engine.Grant{}, &engine.ModeError{Resource: "a", Want: engine.Correctness, Have: engine.Efficiency}
			case config.TTL > time.Minute:
				return engine.Grant{}, fmt.Errorf("%w: ttl (%v) is above the maximum", engine.ErrInvalid, config.TTL)
			}
			return engine.Grant{Token: 1, Mode: engine.Efficiency, Sent: engine.MonotonicClock().Now(), Name: "n"}, nil
		}
		time.AfterFunc(500*time.Millisecond, func() { b.set(topology(2, engine.Efficiency, 30*time.Second)) })
		_, err := c.Acquire(t.Context(), "a")
		require.NoError(t, err)
	})
}

// A wait that ends because its lock changes its mode is released: a member may still wait for
// the lock.
func TestReroutedWaitIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newRouted(t)
		b.acquire = func(ctx context.Context, mode engine.Mode, r engine.Request) (engine.Grant, error) {
			if mode == engine.Correctness {
				return engine.Grant{Token: 1, Mode: mode}, nil
			}
			return waitsForever(ctx, mode, r)
		}
		defer c.Close(t.Context())
		go func() { time.Sleep(time.Second); b.set(topo(2, engine.Correctness)) }()
		_, err := c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.Len(t, b.releases(), 1, "the member still waits for the lock, or has granted it")
	})
}

// A wait whose Redis fleet changes is repeated at the new one.
func TestWaitContinuesAtTheNewFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		b, c := newRouted(t, WithHooks(Hooks{Waiting: func(_ context.Context, e Event) {
			failures = append(failures, e.Err)
		}}))
		b.acquire = func(ctx context.Context, mode engine.Mode, r engine.Request) (engine.Grant, error) {
			if b.Topology().Version == 1 {
				return waitsForever(ctx, mode, r)
			}
			select {
			case <-time.After(time.Second): // it waits for the lock at the new fleet
				return engine.Grant{Token: 1, Mode: mode, Name: "n"}, nil
			case <-ctx.Done():
				return engine.Grant{}, context.Cause(ctx)
			}
		}
		defer c.Close(t.Context())
		next := topo(2, engine.Efficiency)
		next.Fleet.Addresses = []string{"y:1"}
		go func() { time.Sleep(time.Second); b.set(next) }()
		_, err := c.Acquire(t.Context(), "a", WithWaitLimit(time.Minute))
		require.NoError(t, err)
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], clientcore.ErrRerouted)
	})
}

// Close releases what a Release under way could not release.
func TestCloseReleasesWhatIsBeingReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newRouted(t)
		b.acquire = func(_ context.Context, mode engine.Mode, _ engine.Request) (engine.Grant, error) {
			return engine.Grant{Token: 1, Mode: mode, Sent: engine.MonotonicClock().Now(), Name: "n"}, nil
		}
		l, err := c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		b.mu.Lock()
		b.failRelease = true
		b.mu.Unlock()
		go func() { require.Error(t, l.Release(t.Context())) }()
		synctest.Wait()
		require.NoError(t, c.Close(t.Context()))
		time.Sleep(time.Second)
		require.Len(t, b.releases(), 1)
	})
}
