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

// A leader grants and dies before it answers; then there is none for a while.
// That the service was unavailable later says nothing of the first try.
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
		require.Equal(t, fencing.Token(1), l.Token(), "it is found again, not waited for")
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
		_, err = s.client.Acquire(t.Context(), "b") // keeps the session alive
		require.NoError(t, err)
		_, err = s.other().Acquire(t.Context(), "a", lease.WithWaitLimit(ttl))
		require.NoError(t, err, "it must not be held by nobody")
	})
}

func TestWhatIsNoSentinelIsTriedAgain(t *testing.T) {
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

// The session was opened, and the answer lost. Opened again it must have its
// full time.
func TestOpenIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, c engine.SessionConfig, next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				session, err := next(ctx, c)
				if calls.Add(1) == 1 {
					return nil, engine.ErrUncertain
				}
				return session, err
			}
		})
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrUncertain)
		time.Sleep(ttl - time.Second)
		l, err := s.client.TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Err())
	})
}

// Whatever fails, and in whatever order: in the end nobody holds what nobody
// has, and no lease is believed in after the service let it go.
func TestNothingIsLeftBehind(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stormyHour(t, seed) })
		})
	}
}

func stormyHour(t *testing.T, seed uint64) {
	s := newSetup(t)
	source := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	below := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}
	storm := func(ctx context.Context, applied func()) error {
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
			if err := storm(ctx, func() { _, _ = next(ctx, r) }); err != nil {
				return engine.Grant{}, err
			}
			return next(ctx, r)
		}
		on.release = func(ctx context.Context, n engine.Nonce, next releaseFunc) error {
			if err := storm(ctx, func() { _ = next(ctx, n) }); err != nil {
				return err
			}
			return next(ctx, n)
		}
		on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
			if err := storm(ctx, func() { _, _ = next(ctx) }); err != nil {
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
				require.Equal(t, l.Token(), status.Holders[0].Token, "believed in, though the service has let it go")
			}
			_ = l.Release(ctx)
		}
		cancel()
	}
	s.tap(func(on *taps) { *on = taps{} })
	time.Sleep(3 * ttl)
	for i := range 3 {
		l, err := s.other().TryAcquire(t.Context(), fencing.Resource(fmt.Sprint("r", i)))
		require.NoError(t, err, "held by nobody")
		require.NoError(t, l.Release(t.Context()))
	}
}
