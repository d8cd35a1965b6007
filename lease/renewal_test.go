package lease_test

import (
	"context"
	"errors"
	"fmt"
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
			require.NoError(t, l.Err(), "failed renewals are no loss")
			s.memory.Fail(nil)
			require.NoError(t, l.Renew(t.Context()), "there is time until the last moment")
			s.memory.Fail(failure)
			<-l.Done()
			require.ErrorIs(t, context.Cause(l.Context()), engine.ErrExpired)
			require.Equal(t, 2*validity-time.Millisecond, time.Since(start), "and not a moment longer")
			require.Greater(t, len(s.told.read().renewals), 8, "it does not wait a third of the TTL after a failure")
			s.memory.Fail(nil)
		})
	}
}

func TestRenewalThatHangsDoesNotDelayTheDeadline(t *testing.T) {
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
		require.GreaterOrEqual(t, len(s.told.read().renewals), 1, "one that hangs is given up in time to try again")
	})
}

func TestNotYoursStopsAtOnce(t *testing.T) {
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
		require.Less(t, time.Since(start), ttl/2, "long before the deadline")
		time.Sleep(ttl)
		require.Equal(t, int64(1), calls.Load(), "nothing is renewed any more")
		require.Len(t, s.told.read().lost, 1)
		require.ErrorIs(t, s.told.read().lost[0].Err, engine.ErrTaken)
	})
}

func TestAFixedLeaseIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		start := time.Now()
		l := s.acquire(lease.WithoutRenewal())
		<-l.Done()
		require.Equal(t, validity, time.Since(start))
		require.Empty(t, s.told.read().renewals)
	})
}

// Who waits for a fixed lease must be kept in the queue, and gets the full time
// once it is its turn.
func TestWaitingForAFixedLease(t *testing.T) {
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
		require.Len(t, s.told.read().waiting, 1, "it has kept its place, and has not queued again")
		<-l.Done()
		require.Equal(t, validity, time.Since(start))
	})
}

func TestAFixedLeaseBesideARenewedOne(t *testing.T) {
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
		require.Equal(t, 1000, s.told.read().renewals[0].Leases)
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
	})
}

// A renewal that was under way when the lease arrived may not have covered it.
func TestARenewalCoversOnlyWhatWasHeldWhenItWasSent(t *testing.T) {
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
		time.Sleep(1500 * time.Millisecond) // the slow renewal has been answered
		require.True(t, before.Equal(b.Deadline()))
		time.Sleep(ttl / 3)
		require.True(t, b.Deadline().After(before), "the next one covers it")
	})
}

func TestARenewalMayFailForSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		a := s.acquire()
		b, err := s.client.Acquire(t.Context(), "b")
		require.NoError(t, err)
		time.Sleep(ttl) // both have been renewed
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				_, err := next(ctx)
				return []engine.Nonce{1}, err // the first attempt: a
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

func TestAnUnusedSessionIsClosed(t *testing.T) {
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
