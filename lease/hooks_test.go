package lease_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

func TestSlowHookDoesNotDelayContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		s := newSetup(t, lease.WithHooks(lease.Hooks{Lost: func(context.Context, lease.Event) { <-block }}))
		var leases []*lease.Lease
		for _, name := range []string{"a", "b"} {
			l, err := s.client.Acquire(t.Context(), fencing.Resource(name))
			require.NoError(t, err)
			leases = append(leases, l)
		}
		s.memory.Fail(engine.ErrUnavailable)
		time.Sleep(validity)
		synctest.Wait()
		for _, l := range leases {
			require.Error(t, l.Context().Err())
		}
		close(block)
		s.memory.Fail(nil)
	})
}

func TestSlowHookDoesNotStopRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		s := newSetup(t, lease.WithHooks(lease.Hooks{Renewed: func(lease.Renewal) { <-block }}))
		l := s.acquire()
		time.Sleep(time.Minute)
		require.NoError(t, l.Err())
		close(block)
	})
}

// TestHooksReportEachLeaseOnce checks that a program can count leases by hooks.
func TestHooksReportEachLeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		outer, inner := s.acquire(lease.WithHolder("x")), s.acquire(lease.WithHolder("x"))
		require.NoError(t, inner.Release(t.Context()))
		require.NoError(t, outer.Release(t.Context()))
		s.acquire(lease.WithHolder("x"))
		third := s.acquire(lease.WithHolder("x"))
		require.NoError(t, s.memory.Break(context.Background(), "a", third.Token()))
		synctest.Wait()
		events := s.events.read()
		require.Len(t, events.acquired, 4)
		require.Len(t, events.released, 2)
		require.Len(t, events.lost, 2)
	})
}

type spanKey struct{}

// TestStartProvidesTheContext checks that the engine, the other hooks, the lease and the
// work see the values of the context that Start returned, and that several hooks combine
// in order.
func TestStartProvidesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		see := func(where string, ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			value, _ := ctx.Value(spanKey{}).(string)
			seen = append(seen, where+" "+value)
		}
		start := func(name string) func(context.Context, []fencing.Resource) context.Context {
			return func(ctx context.Context, resources []fencing.Resource) context.Context {
				require.Equal(t, []fencing.Resource{"a"}, resources)
				value, _ := ctx.Value(spanKey{}).(string)
				return context.WithValue(ctx, spanKey{}, value+name)
			}
		}
		hook := func(name string) func(context.Context, lease.Event) {
			return func(ctx context.Context, _ lease.Event) { see(name, ctx) }
		}
		s := newSetup(t,
			lease.WithHooks(lease.Hooks{Start: start("x"), Acquired: hook("acquired"), Released: hook("released")}),
			lease.WithHooks(lease.Hooks{Failed: hook("failed"), Lost: hook("lost"), Released: hook("released again")}),
			lease.WithHooks(lease.Hooks{Start: start("y"), Waiting: hook("waiting")}))
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				see("engine", ctx)
				return next(ctx, r)
			}
		})
		ctx := context.WithValue(t.Context(), spanKey{}, "w")
		require.NoError(t, s.client.Do(ctx, "a", func(ctx context.Context, l *lease.Lease) error {
			see("work", ctx)
			see("lease", l.Context())
			_, err := s.client.Acquire(ctx, "a", lease.WithWaitLimit(time.Second))
			require.ErrorIs(t, err, lease.ErrHeld)
			synctest.Wait() // until the attempt has left the queue
			return nil
		}))
		l := s.acquire()
		require.NoError(t, s.memory.Break(ctx, "a", l.Token()))
		synctest.Wait()
		require.Equal(t, []string{"engine wxy", "acquired wxy", "work wxy", "lease wxy",
			"engine wxyxy", "waiting wxyxy", "failed wxyxy",
			"released wxy", "released again wxy",
			"engine xy", "acquired xy", "lost xy"}, seen)
	})
}

// TestFailedAcquisitionsAreReported checks that each Start is followed by one Acquired or
// Failed, whatever the failure.
func TestFailedAcquisitionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		s := newSetup(t, lease.WithHooks(lease.Hooks{Start: func(ctx context.Context, _ []fencing.Resource) context.Context {
			starts++
			return ctx
		}}))
		l := s.acquire()
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			code    string
			ctx     context.Context
			name    fencing.Resource
			options []lease.AcquireOption
		}{
			{"invalid-resource", t.Context(), "", nil},
			{"invalid", t.Context(), "a", []lease.AcquireOption{lease.WithTTL(-1)}},
			{"held", t.Context(), "a", []lease.AcquireOption{lease.WithWaitLimit(time.Second)}},
			{"canceled", cancelled, "a", nil},
			{"mode-mismatch", t.Context(), "b", []lease.AcquireOption{lease.WithMode(lease.Efficiency)}},
		} {
			_, err := s.client.Acquire(tt.ctx, tt.name, tt.options...)
			require.Error(t, err)
			failed := s.events.read().failed
			last := failed[len(failed)-1]
			require.Equal(t, err, last.Err)
			require.Equal(t, tt.code, lease.Code(err))
			require.Equal(t, []fencing.Resource{tt.name}, last.Resources)
		}
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.Equal(t, "held", lease.Code(err))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, s.client.Close(t.Context()))
		_, err = s.client.Acquire(t.Context(), "a")
		require.Equal(t, "closed", lease.Code(err))
		events := s.events.read()
		require.Len(t, events.failed, 7)
		require.Equal(t, starts, len(events.failed)+len(events.acquired))
	})
}

// TestPanickingHookLeavesNoLease checks that a lease that the caller does not get because a
// hook panics is released, and does not live on under automatic renewal.
func TestPanickingHookLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		s := newSetup(t, lease.WithHooks(lease.Hooks{Acquired: func(context.Context, lease.Event) {
			if broken {
				panic("broken hook")
			}
		}}))
		require.PanicsWithValue(t, "broken hook", func() { s.acquire() })
		broken = false
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.NoError(t, err)
	})
}

// TestHookMayCallTheClient checks that hooks run without the client's mutexes.
func TestHookMayCallTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *lease.Client
		calls := 0
		call := func(context.Context, lease.Event) {
			calls++
			if _, err := c.Inspect(context.Background(), "a"); err != nil {
				t.Error(err)
			}
		}
		s := newSetup(t, lease.WithHooks(lease.Hooks{Acquired: call, Failed: call, Released: call, Lost: call,
			Waiting: call}))
		c = s.client
		l := s.acquire()
		_, err := c.Acquire(t.Context(), "a", lease.WithWaitLimit(time.Second))
		require.ErrorIs(t, err, lease.ErrHeld)
		synctest.Wait() // until the attempt has left the queue
		require.NoError(t, l.Release(t.Context()))
		l = s.acquire()
		require.NoError(t, s.memory.Break(t.Context(), "a", l.Token()))
		synctest.Wait()
		require.Equal(t, 6, calls)
	})
}

// A hook that is slow to return delays neither the renewal of other leases nor the engine that
// reports the loss.
func TestSlowLostHookDoesNotStopRenewal(t *testing.T) {
	for name, lose := range map[string]func(s *setup, nonce engine.Nonce, l *lease.Lease){
		"reported by the engine": func(s *setup, _ engine.Nonce, l *lease.Lease) {
			require.NoError(s, s.memory.Break(s.Context(), "a", l.Token()))
		},
		"not renewed": func(s *setup, nonce engine.Nonce, _ *lease.Lease) {
			s.tap(func(on *taps) {
				on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
					extended, err := next(ctx)
					return slices.DeleteFunc(extended, func(n engine.Nonce) bool { return n == nonce }), err
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				block := make(chan struct{})
				end := sync.OnceFunc(func() { close(block) })
				time.AfterFunc(time.Hour, end)
				s := newSetup(t, lease.WithHooks(lease.Hooks{Lost: func(context.Context, lease.Event) { <-block }}))
				var nonce engine.Nonce
				s.tap(func(on *taps) {
					on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
						nonce = r.Nonce
						return next(ctx, r)
					}
				})
				kept, err := s.client.Acquire(t.Context(), "b")
				require.NoError(t, err)
				l := s.acquire()
				began := time.Now()
				lose(s, nonce, l)
				require.Zero(t, time.Since(began), "the engine does not wait for the hook")
				time.Sleep(time.Minute)
				require.Error(t, l.Err())
				require.NoError(t, kept.Err())
				end()
				require.NoError(t, s.client.Close(t.Context()))
				require.Len(t, s.events.read().lost, 2, "Close waits for the hooks: one lease was lost, the other one closed")
			})
		})
	}
}

// The hook Waiting does not delay the engine that reports it, and returns before the hook
// that ends the call.
func TestSlowWaitingHookDoesNotDelayTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		s := newSetup(t, lease.WithHooks(lease.Hooks{Waiting: func(context.Context, lease.Event) { <-block }}))
		l := s.acquire()
		var reported time.Duration
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				queued := r.Queued
				r.Queued = func() {
					began := time.Now()
					queued()
					reported = time.Since(began)
				}
				return next(ctx, r)
			}
		})
		time.AfterFunc(time.Second, func() { _ = l.Release(t.Context()) })
		time.AfterFunc(time.Minute, func() { close(block) })
		began := time.Now()
		_, err := s.client.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.Zero(t, reported)
		require.Equal(t, time.Minute, time.Since(began), "the call waits for its hooks")
		require.Equal(t, []string{"acquired", "waiting", "released", "acquired"}, s.events.read().names)
	})
}

// Close waits for hooks, also for one that is slow.
func TestCloseWaitsForHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		s := newSetup(t, lease.WithHooks(lease.Hooks{Lost: func(context.Context, lease.Event) {
			time.Sleep(time.Minute)
			returned = true
		}}))
		l := s.acquire()
		require.NoError(t, s.memory.Break(t.Context(), "a", l.Token()))
		require.NoError(t, s.client.Close(t.Context()))
		require.True(t, returned)
	})
}
