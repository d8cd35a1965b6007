package lease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// Concurrent calls open a session once.
func TestSessionIsOpenedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var opens counter
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, config engine.SessionConfig,
				next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				opens.Add(1)
				time.Sleep(time.Second)
				return next(ctx, config)
			}
		})
		errs := make(chan error, 2)
		for _, name := range []fencing.Resource{"a", "b"} {
			go func() {
				_, err := s.client.Acquire(t.Context(), name)
				errs <- err
			}()
		}
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.EqualValues(t, 1, opens.Load())
	})
}

// A renewal that a caller wants waits for the one under way, and is then sent.
func TestRenewWaitsForARenewalUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var renewals counter
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				renewals.Add(1)
				time.Sleep(time.Second)
				return next(ctx)
			}
		})
		l := s.acquire()
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- l.Renew(t.Context()) }()
		}
		began := time.Now()
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.EqualValues(t, 2, renewals.Load())
	})
}

// A session that the service has ended is not closed there.
func TestLostSessionIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var closes counter
		s.tap(func(on *taps) {
			on.renew = func(context.Context, renewFunc) ([]engine.Nonce, error) { return nil, engine.ErrExpired }
			on.closing = func(ctx context.Context, next func(context.Context) error) error {
				closes.Add(1)
				return next(ctx)
			}
		})
		l := s.acquire()
		<-l.Done()
		require.NoError(t, s.client.Close(t.Context()))
		require.Zero(t, closes.Load())
	})
}

// Err reports a lease past its deadline to the context and to the hooks, even if the timer
// of the session is late.
func TestErrReportsTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		ctx := l.Context()
		s.clock.Suspend(ttl)
		require.ErrorIs(t, l.Err(), lease.ErrExpired)
		require.ErrorIs(t, context.Cause(ctx), lease.ErrExpired)
		synctest.Wait()
		require.Len(t, s.events.read().lost, 1)
	})
}

// Release ends the context before it calls the service.
func TestReleaseEndsTheContextFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		ctx := l.Context()
		s.tap(func(on *taps) {
			on.release = func(c context.Context, n engine.Nonce, next releaseFunc) error {
				require.ErrorIs(t, context.Cause(ctx), lease.ErrReleased)
				return next(c, n)
			}
		})
		require.NoError(t, l.Release(t.Context()))
		require.ErrorIs(t, context.Cause(ctx), lease.ErrReleased)
	})
}

// The context of a lease with less than a second left when its grant arrives ends at the
// deadline, not when the timer of the session would fire next.
func TestContextOfAShortLeaseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		began := time.Now()
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				sent := s.clock.Now()
				g, err := next(ctx, r)
				time.Sleep(9500 * time.Millisecond)
				g.Sent = sent
				return g, err
			}
		})
		l := s.acquire(lease.WithoutRenewal(), lease.WithTTL(ttl))
		<-l.Done()
		require.Equal(t, validity.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	})
}

// An error of a call that nobody interrupted is the answer alone.
func TestErrorText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.acquire()
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.EqualError(t, err, `acquire "a": lock is held`)
	})
}

// A released lease has ended, although another lease of its holder keeps the grant.
func TestReleasedLeaseOfAReentrantHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		first, second := s.acquire(lease.WithHolder("h")), s.acquire(lease.WithHolder("h"))
		require.NoError(t, first.Release(t.Context()))
		require.ErrorIs(t, first.Err(), lease.ErrReleased)
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrReleased)
		require.NoError(t, second.Err())
		require.NoError(t, second.Release(t.Context()))
	})
}

// Releases that do not begin at about the same time have a limit each.
func TestEachReleaseHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var left []time.Duration
		s.tap(func(on *taps) {
			on.release = func(ctx context.Context, n engine.Nonce, next releaseFunc) error {
				deadline, _ := ctx.Deadline()
				left = append(left, time.Until(deadline))
				return next(ctx, n)
			}
		})
		for range 2 {
			require.NoError(t, s.acquire().Release(t.Context()))
			time.Sleep(4 * time.Second)
		}
		require.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second}, left)
	})
}

// A session whose connection dropped is renewed within a second, so that its holder hears of a
// loss, whenever the next renewal is due.
func TestRenewalAfterADroppedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var drop func()
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, config engine.SessionConfig,
				next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				drop = config.Disconnected
				return next(ctx, config)
			}
		})
		l := s.acquire(lease.WithTTL(time.Hour))
		var renewals counter
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				renewals.Add(1)
				return next(ctx)
			}
		})
		time.Sleep(time.Minute)
		require.Zero(t, renewals.Load())
		drop()
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, renewals.Load())
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, renewals.Load(), "once")
		require.NoError(t, l.Err())
	})
}

// Calls that need a session share the outcome of one try to open it: in an outage, a try takes seconds.
func TestCallsShareTheTryToOpenASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.open = func(context.Context, engine.SessionConfig,
				func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				time.Sleep(5 * time.Second)
				return nil, engine.ErrUnavailable
			}
		})
		began := time.Now()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				_, err := s.client.TryAcquire(t.Context(), fencing.Resource(fmt.Sprint("lock-", i)))
				require.ErrorIs(t, err, engine.ErrUnavailable)
			})
		}
		calls.Wait()
		require.LessOrEqual(t, time.Since(began), 15*time.Second)
		s.tap(func(on *taps) { *on = taps{} })
		s.acquire()
	})
}

// Renewals by callers that give up at once do not end leases that the service would renew.
func TestShortRenewalsDoNotEndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire(lease.WithTTL(10 * time.Second))
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				select {
				case <-time.After(150 * time.Millisecond):
					return next(ctx)
				case <-ctx.Done():
					return nil, engine.ErrUncertain
				}
			}
		})
		for range 60 {
			hurried, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			require.ErrorIs(t, l.Renew(hurried), engine.ErrUncertain)
			cancel()
			time.Sleep(400 * time.Millisecond)
		}
		require.NoError(t, l.Err())
		require.NoError(t, l.Release(t.Context()))
	})
}
