package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// TestUncertainThenUnavailable lets the service grant the lock without an answer, then
// be unavailable. The second error says nothing about the first call.
func TestUncertainThenUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				switch calls.Add(1) {
				case 1:
					_, err := next(ctx, r)
					require.NoError(t, err)
					return engine.Grant{}, engine.ErrUncertain
				case 2:
					return engine.Grant{}, engine.ErrUnavailable
				}
				return next(ctx, r)
			}
		})
		l := s.acquire(lease.WithWaitLimit(time.Minute))
		require.Equal(t, fencing.Token(1), l.Token(), "the retry must find the first grant")
	})
}

func TestUncertainThenUnavailableAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				if calls.Add(1) == 1 {
					_, err := next(ctx, r)
					require.NoError(t, err)
					return engine.Grant{}, engine.ErrUncertain
				}
				return engine.Grant{}, engine.ErrUnavailable
			}
		})
		_, err := s.client.Acquire(t.Context(), "a", lease.WithWaitLimit(5*time.Second))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		s.tap(func(on *taps) { on.acquire = nil })
		_, err = s.client.Acquire(t.Context(), "b") // keeps the session in use
		require.NoError(t, err)
		_, err = s.other().Acquire(t.Context(), "a", lease.WithWaitLimit(ttl))
		require.NoError(t, err, "the abandoned attempt must not hold the lock")
	})
}

func TestUnknownErrorIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.memory.Fail(io.ErrUnexpectedEOF)
		go func() {
			time.Sleep(5 * time.Second)
			s.memory.Fail(nil)
		}()
		s.acquire()
	})
}

// TestOpenIsUncertain loses the answer to the first Open. The session that the retry
// finds must have its full TTL.
func TestOpenIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, c engine.SessionConfig,
				next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				session, err := next(ctx, c)
				if calls.Add(1) == 1 {
					return nil, engine.ErrUncertain
				}
				return session, err
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := s.client.TryAcquire(ctx, "a")
		require.ErrorIs(t, err, engine.ErrUncertain)
		time.Sleep(ttl - time.Second)
		l, err := s.client.TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Err())
	})
}

// TestNoLockStaysHeldAfterFaults injects random faults into every call. A lease must
// end before the service ends it, and no lock may stay held without a lease.
func TestNoLockStaysHeldAfterFaults(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { acquireUnderFaults(t, seed) })
		})
	}
}

func acquireUnderFaults(t *testing.T, seed uint64) {
	s := newSetup(t)
	source := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	below := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}
	fault := func(ctx context.Context, applied func()) error {
		switch below(8) {
		case 0:
			return engine.ErrUnavailable
		case 1:
			applied()
			return engine.ErrUncertain
		case 2:
			applied()
			return errors.New("connection reset")
		case 3:
			time.Sleep(time.Duration(below(4000)) * time.Millisecond)
		}
		return nil
	}
	s.tap(func(on *taps) {
		on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
			if err := fault(ctx, func() { _, _ = next(ctx, r) }); err != nil {
				return engine.Grant{}, err
			}
			return next(ctx, r)
		}
		on.release = func(ctx context.Context, n engine.Nonce, next releaseFunc) error {
			if err := fault(ctx, func() { _ = next(ctx, n) }); err != nil {
				return err
			}
			return next(ctx, n)
		}
		on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
			if err := fault(ctx, func() { _, _ = next(ctx) }); err != nil {
				return nil, err
			}
			return next(ctx)
		}
	})
	for round := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(below(5000))*time.Millisecond)
		l, err := s.client.Acquire(ctx, fencing.Resource(fmt.Sprint("r", round%3)))
		if err == nil {
			time.Sleep(time.Duration(below(3000)) * time.Millisecond)
			if l.Err() == nil {
				status, err := s.memory.Inspect(t.Context(), l.Resource())
				require.NoError(t, err)
				require.Len(t, status.Holders, 1)
				require.Equal(t, l.Token(), status.Holders[0].Token, "the lease outlives its grant at the service")
			}
			_ = l.Release(ctx)
		}
		cancel()
	}
	s.tap(func(on *taps) { *on = taps{} })
	time.Sleep(3 * ttl)
	for i := range 3 {
		l, err := s.other().TryAcquire(t.Context(), fencing.Resource(fmt.Sprint("r", i)))
		require.NoError(t, err, "the lock is held without a lease")
		require.NoError(t, l.Release(t.Context()))
	}
}

// TestInspectAndBreakTolerateAShortOutage checks that both repeat a call while the
// service is unavailable, and that a repeated Break whose first call took effect
// succeeds.
func TestInspectAndBreakTolerateAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.memory.Fail(engine.ErrUnavailable)
		time.AfterFunc(2*time.Second, func() { s.memory.Fail(nil) })
		status, err := s.client.Inspect(t.Context(), "a")
		require.NoError(t, err)
		require.Len(t, status.Holders, 1)

		s.tap(func(on *taps) {
			on.breaking = func(ctx context.Context, name fencing.Resource, token fencing.Token) error {
				require.NoError(t, s.memory.Break(ctx, name, token))
				s.tap(func(on *taps) { on.breaking = nil })
				return engine.ErrUncertain
			}
		})
		require.NoError(t, s.client.Break(t.Context(), "a", l.Token()))
		start := time.Now()
		require.ErrorIs(t, s.client.Break(t.Context(), "a", l.Token()), engine.ErrNotHeld)
		require.Zero(t, time.Since(start), "an answer of the service is final")
	})
}
