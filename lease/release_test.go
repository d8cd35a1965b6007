package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/memory"
)

func newMemory(t *testing.T) *memory.Backend {
	t.Helper()
	memory, err := memory.New()
	require.NoError(t, err)
	return memory
}

func TestReleaseOnACancelledContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		cancel()
		var used context.Context
		s.tap(func(on *taps) {
			on.release = func(ctx context.Context, n engine.Nonce, next releaseFunc) error {
				used = ctx
				return next(ctx, n)
			}
		})
		require.NoError(t, l.Release(ctx), "the release must not use a canceled context")
		require.Equal(t, "kept", used.Value(key{}))
		_, err := s.other().TryAcquire(t.Context(), "a")
		require.NoError(t, err, "confirmed before Release returned")
	})
}

// A user that has reached its rate releases what it holds as soon as the rate allows it.
func TestEndsWaitForTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.memory.Fail(engine.ErrLimit)
		time.AfterFunc(ttl/8, func() { s.memory.Fail(nil) })
		require.NoError(t, l.Release(t.Context()))
		s.memory.Fail(engine.ErrLimit)
		time.AfterFunc(ttl/8, func() { s.memory.Fail(nil) })
		require.NoError(t, s.client.Close(t.Context()))
	})
}

// TestReleaseToleratesAShortOutage checks that Release itself repeats the call for a
// few seconds, so that a failover is not an error for the holder.
func TestReleaseToleratesAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		var calls counter
		s.tap(func(on *taps) {
			on.release = func(ctx context.Context, n engine.Nonce, next releaseFunc) error {
				if calls.Add(1) <= 2 {
					return engine.ErrUncertain
				}
				return next(ctx, n)
			}
		})
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, s.events.read().released[0].Err)
	})
}

func TestFailedReleaseIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		kept, err := s.client.Acquire(t.Context(), "kept") // keeps the session in use
		require.NoError(t, err)
		start := time.Now()
		s.tap(func(on *taps) {
			on.release = func(ctx context.Context, n engine.Nonce, next releaseFunc) error {
				if time.Since(start) < 7*time.Second { // longer than Release itself retries
					return engine.ErrUnavailable
				}
				return next(ctx, n)
			}
		})
		require.ErrorIs(t, l.Release(t.Context()), engine.ErrUnavailable)
		require.ErrorIs(t, l.Err(), engine.ErrReleased, "the lease has ended for its holder")
		require.ErrorIs(t, s.events.read().released[0].Err, engine.ErrUnavailable)
		_, err = s.other().Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.Less(t, time.Since(start), 2*ttl)
		require.NoError(t, kept.Err())
	})
}

// TestReleaseRetriesEndWithTheSession checks that a release which never succeeds is
// not retried forever: after a TTL without keep-alive the service ends the session.
func TestReleaseRetriesEndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		var calls counter
		s.tap(func(on *taps) {
			on.release = func(context.Context, engine.Nonce, releaseFunc) error {
				calls.Add(1)
				return engine.ErrUnavailable
			}
		})
		require.Error(t, l.Release(t.Context()))
		_, err := s.other().Acquire(t.Context(), "a")
		require.NoError(t, err, "the session expires because nothing renews it")
		time.Sleep(2 * ttl)
		before := calls.Load()
		time.Sleep(10 * ttl)
		require.Equal(t, before, calls.Load())
		require.Empty(t, s.events.read().renewals, "a session with only pending releases is not renewed")
	})
}

func TestReleaseReturnsWhenTheServiceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.tap(func(on *taps) {
			on.release = func(ctx context.Context, _ engine.Nonce, _ releaseFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		start := time.Now()
		err := l.Release(context.Background())
		require.ErrorIs(t, err, engine.ErrUncertain)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "it is not the caller's")
		require.LessOrEqual(t, time.Since(start), ttl)
	})
}

func TestLeaseContextOutlivesTheContextOfAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "kept"), time.Second)
		l, err := s.client.Acquire(ctx, "a")
		require.NoError(t, err)
		cancel()
		time.Sleep(3 * time.Second)
		require.NoError(t, l.Err())
		require.NoError(t, l.Context().Err())
		require.Equal(t, "kept", l.Context().Value(key{}))
	})
}

func TestHooksReportEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		other := s.other()
		held, err := other.Acquire(t.Context(), "a")
		require.NoError(t, err)
		go func() {
			time.Sleep(3 * time.Second)
			_ = held.Release(context.Background())
		}()
		l := s.acquire(lease.WithMetadata(map[string]string{"k": "v"}))
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Release(t.Context()))
		l = s.acquire()
		require.NoError(t, other.Break(t.Context(), "a", l.Token()))
		<-l.Done()
		synctest.Wait()
		require.Equal(t, []string{"waiting", "acquired", "released", "acquired", "lost"}, s.events.read().names)
		require.Equal(t, 3*time.Second, s.events.read().acquired[0].Elapsed)
		require.Equal(t, 2*time.Second, s.events.read().released[0].Elapsed)
		require.Equal(t, "tester", s.events.read().lost[0].Holder)
		require.Equal(t, l.Token(), s.events.read().lost[0].Token)
		require.ErrorIs(t, s.events.read().lost[0].Err, engine.ErrTaken)
	})
}

func TestCloseReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.acquire()
		s.tap(func(on *taps) {
			on.closing = func(ctx context.Context, _ func(context.Context) error) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.client.Close(ctx), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		s.tolerant = true
	})
}

func TestCloseReportsUnconfirmedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.memory.Fail(engine.ErrUnavailable)
		require.ErrorIs(t, s.client.Close(t.Context()), engine.ErrUnavailable)
		require.ErrorIs(t, l.Err(), lease.ErrClosed)
		s.memory.Fail(nil)
		s.tolerant = true
	})
}

// Close also ends calls such as Break and Inspect, and later ones do not wait for a service that is down.
func TestCloseEndsOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.breaking = func(ctx context.Context, _ fencing.Resource, _ fencing.Token) error {
				<-ctx.Done()
				return engine.ErrUncertain
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- s.client.Break(t.Context(), "a", 1) }()
		synctest.Wait()
		require.NoError(t, s.client.Close(t.Context()))
		err := <-ended
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorIs(t, err, engine.ErrUncertain)
		_, err = s.client.Inspect(t.Context(), "a")
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

// TestLeaseWithoutRenewalIsReleasedEventually checks that the session of a lease
// without renewal lives until the service confirms the release.
func TestLeaseWithoutRenewalIsReleasedEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire(lease.WithoutRenewal(), lease.WithTTL(12*time.Hour))
		s.tap(func(on *taps) {
			on.release = func(ctx context.Context, _ engine.Nonce, _ releaseFunc) error {
				<-ctx.Done()
				return engine.ErrUncertain
			}
			on.closing = func(ctx context.Context, _ func(context.Context) error) error {
				<-ctx.Done()
				return engine.ErrUncertain
			}
		})
		require.ErrorIs(t, l.Release(t.Context()), engine.ErrUncertain)
		time.Sleep(20 * time.Second)
		s.tap(func(on *taps) { *on = taps{} })
		time.Sleep(5 * time.Hour)
		_, err := s.other().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
	})
}

// An extended lease whose release fails is released when the service answers again: it would
// keep the lock for the rest of its long time. The answer to Extend may have been lost.
func TestExtendedLeaseIsReleasedEventually(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			l := s.acquire()
			s.tap(func(on *taps) {
				on.update = func(ctx context.Context, next func(context.Context) error) error {
					if err := next(ctx); err != nil || answered {
						return err
					}
					return engine.ErrUncertain
				}
			})
			if err := l.Extend(t.Context(), 12*time.Hour); answered {
				require.NoError(t, err)
			}
			s.memory.Fail(engine.ErrUnavailable)
			require.ErrorIs(t, l.Release(t.Context()), engine.ErrUnavailable)
			time.Sleep(time.Hour)
			s.memory.Fail(nil)
			time.Sleep(2 * time.Second)
			_, err := s.other().TryAcquire(t.Context(), "a")
			require.NoError(t, err)
		})
	}
}

// TestExpiredLeaseIsReleased checks that a lease past its deadline is released at the
// service, where the session may live on because of other leases.
func TestExpiredLeaseIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		a := s.acquire()
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				_, err := next(ctx)
				return []engine.Nonce{2}, err // a is renewed at the service, and the answer does not say so
			}
		})
		b, err := s.client.Acquire(t.Context(), "b")
		require.NoError(t, err)
		<-a.Done()
		time.Sleep(2 * ttl)
		require.NoError(t, b.Err())
		_, err = s.other().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
	})
}

// hookedClock calls a function at each reading.
type hookedClock struct {
	engine.Clock
	at atomic.Pointer[func()]
}

func (c *hookedClock) Now() engine.Instant {
	if at := c.at.Load(); at != nil {
		(*at)()
	}
	return c.Clock.Now()
}

// TestReleaseRacesWithItself runs a second Release after the first one has read the clock.
func TestReleaseRacesWithItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hookedClock{Clock: leasetest.NewClock()}
		s := newSetup(t, lease.WithClock(clock))
		l := s.acquire()
		var inner error
		second := func() {
			clock.at.Store(nil)
			inner = l.Release(t.Context())
		}
		synctest.Wait() // no other goroutine reads the clock now
		clock.at.Store(&second)
		outer := l.Release(t.Context())
		require.NoError(t, inner)
		require.ErrorIs(t, outer, engine.ErrReleased)
		require.Len(t, s.events.read().released, 1)
	})
}

func TestReleaseOfAnUnknownLeaseSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.tap(func(on *taps) {
			on.release = func(context.Context, engine.Nonce, releaseFunc) error { return engine.ErrNotHeld }
		})
		require.NoError(t, l.Release(t.Context()), "the lock is free, as the caller wanted")
	})
}
