package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

func TestRenewalAtAThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var at []time.Duration
		start := time.Now()
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				at = append(at, time.Since(start).Round(10*time.Millisecond))
				return next(ctx)
			}
		})
		l := s.acquire()
		time.Sleep(ttl + time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{3330 * time.Millisecond, 6670 * time.Millisecond, 10 * time.Second}, at)
		require.NoError(t, l.Err())
	})
}

func TestFailedRenewalsAreToleratedUntilTheDeadline(t *testing.T) {
	for _, failure := range []error{engine.ErrUnavailable, engine.ErrUncertain, errors.New("the network is down")} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			l := s.acquire()
			start := time.Now()
			s.memory.Fail(failure)
			time.Sleep(validity - time.Millisecond)
			require.NoError(t, l.Err(), "a failed renewal is not a loss")
			s.memory.Fail(nil)
			require.NoError(t, l.Renew(t.Context()), "a renewal just before the deadline succeeds")
			s.memory.Fail(failure)
			<-l.Done()
			require.ErrorIs(t, context.Cause(l.Context()), engine.ErrExpired)
			require.Equal(t, 2*validity-time.Millisecond, time.Since(start), "the lease ends at its deadline")
			require.Greater(t, len(s.events.read().renewals), 8, "after a failure the next renewal comes earlier")
			s.memory.Fail(nil)
		})
	}
}

func TestHangingRenewalDoesNotDelayTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, _ renewFunc) ([]engine.Nonce, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		start := time.Now()
		l := s.acquire()
		<-l.Done()
		require.Equal(t, validity, time.Since(start))
		require.GreaterOrEqual(t, len(s.events.read().renewals), 1, "a renewal that hangs is canceled in time for another")
	})
}

func TestTakenLeaseEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		var calls counter
		s.tap(func(on *taps) {
			on.renew = func(context.Context, renewFunc) ([]engine.Nonce, error) {
				calls.Add(1)
				return nil, fmt.Errorf("answer of the service: %w", engine.ErrTaken)
			}
		})
		start := time.Now()
		<-l.Done()
		require.ErrorIs(t, l.Err(), engine.ErrTaken)
		require.ErrorIs(t, l.Err(), engine.ErrLost)
		require.NotErrorIs(t, l.Err(), engine.ErrExpired)
		require.Less(t, time.Since(start), ttl/2, "before the deadline")
		time.Sleep(ttl)
		require.Equal(t, int64(1), calls.Load(), "a lost session is not renewed")
		require.Len(t, s.events.read().lost, 1)
		require.ErrorIs(t, s.events.read().lost[0].Err, engine.ErrTaken)
	})
}

func TestLeaseWithoutRenewalIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		start := time.Now()
		l := s.acquire(lease.WithoutRenewal())
		<-l.Done()
		require.Equal(t, validity, time.Since(start))
		require.Empty(t, s.events.read().renewals)
	})
}

// TestWaitingForALeaseWithoutRenewal checks that the waiter stays in the queue and
// gets the full TTL when it is granted.
func TestWaitingForALeaseWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		held, err := s.other().Acquire(t.Context(), "a")
		require.NoError(t, err)
		go func() {
			time.Sleep(5*ttl + time.Second)
			_ = held.Release(context.Background())
		}()
		l := s.acquire(lease.WithoutRenewal())
		start := time.Now()
		require.Len(t, s.events.read().waiting, 1, "the waiter stays in the queue")
		<-l.Done()
		require.Equal(t, validity, time.Since(start))
	})
}

func TestLeaseWithoutRenewalBesideARenewedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		renewed := s.acquire()
		fixed, err := s.client.Acquire(t.Context(), "fixed", lease.WithoutRenewal())
		require.NoError(t, err)
		time.Sleep(2 * ttl)
		require.NoError(t, renewed.Err())
		require.ErrorIs(t, fixed.Err(), engine.ErrExpired)
	})
}

func TestOneKeepAliveServesAllLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				calls.Add(1)
				return next(ctx)
			}
		})
		var leases []*lease.Lease
		for i := range 1000 {
			l, err := s.client.Acquire(t.Context(), fencing.Resource(fmt.Sprint("r", i)))
			require.NoError(t, err)
			leases = append(leases, l)
		}
		time.Sleep(ttl)
		require.LessOrEqual(t, calls.Load(), int64(3))
		require.Equal(t, 1000, s.events.read().renewals[0].Leases)
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
	})
}

// TestRenewalCoversOnlyLeasesHeldWhenItWasSent grants a lease while a renewal is under
// way. That renewal may not have covered it.
func TestRenewalCoversOnlyLeasesHeldWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.acquire()
		slowOnce := true
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				if slowOnce {
					slowOnce = false
					time.Sleep(2 * time.Second)
				}
				return next(ctx)
			}
		})
		time.Sleep(ttl/3 + time.Second) // the slow renewal is under way
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				g, err := next(ctx, r)
				g.Sent = s.clock.Now().Add(-3 * time.Second) // sent before the renewal was
				return g, err
			}
		})
		b, err := s.client.Acquire(t.Context(), "b")
		require.NoError(t, err)
		before := b.Deadline()
		time.Sleep(1500 * time.Millisecond) // the slow renewal is answered
		require.True(t, before.Equal(b.Deadline()))
		time.Sleep(ttl / 3)
		require.True(t, b.Deadline().After(before), "the next renewal covers it")
	})
}

func TestRenewalMayFailForSomeLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		a := s.acquire()
		b, err := s.client.Acquire(t.Context(), "b")
		require.NoError(t, err)
		time.Sleep(ttl) // both have been renewed
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				extended, err := next(ctx)
				return slices.DeleteFunc(extended, func(n engine.Nonce) bool { return n == 1 }), err // without a
			}
		})
		<-a.Done()
		require.ErrorIs(t, a.Err(), engine.ErrExpired)
		require.NoError(t, b.Err())
		require.NoError(t, b.Renew(t.Context()))
		time.Sleep(2 * ttl)
		require.NoError(t, b.Err())
	})
}

// A renewal extends what the engine names, and nothing else: an engine that has forgotten a
// grant names no failure.
func TestRenewalExtendsOnlyWhatTheEngineNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		time.Sleep(ttl) // it has been renewed
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				_, err := next(ctx)
				return []engine.Nonce{77}, err // of no attempt
			}
		})
		renewed := l.Deadline()
		require.ErrorIs(t, l.Renew(t.Context()), engine.ErrUnavailable)
		require.True(t, renewed.Equal(l.Deadline()))
		<-l.Done()
		require.ErrorIs(t, l.Err(), engine.ErrExpired)
	})
}

func TestUnusedSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var closed counter
		s.tap(func(on *taps) {
			on.closing = func(ctx context.Context, next func(context.Context) error) error {
				closed.Add(1)
				return next(ctx)
			}
		})
		require.NoError(t, s.acquire().Release(t.Context()))
		require.NoError(t, s.acquire().Release(t.Context()), "the session is used again")
		require.Zero(t, closed.Load())
		time.Sleep(2 * ttl)
		require.Equal(t, int64(1), closed.Load())
		s.acquire()
	})
}
