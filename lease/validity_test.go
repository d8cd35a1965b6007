package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// grantWithoutTime answers like a backend without sessions that does not set Grant.Sent.
func grantWithoutTime(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
	g, err := next(ctx, r)
	g.Sent, g.Name = engine.Instant{}, "named"
	return g, err
}

func TestValidityCountsFromBeforeTheRequestWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		const slow = 2 * time.Second
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				time.Sleep(slow / 2) // the request
				g, err := grantWithoutTime(ctx, r, next)
				time.Sleep(slow / 2) // the answer
				return g, err
			}
		})
		sent := time.Now()
		l := s.acquire(lease.WithoutRenewal())
		require.Equal(t, sent.Add(slow), time.Now())
		require.True(t, sent.Add(validity).Equal(l.Deadline()), "%v, not %v", l.Deadline().Sub(sent), validity)
		<-l.Done()
		require.True(t, sent.Add(validity).Equal(time.Now()), "the context ends with the deadline")
	})
}

func TestValidityCountsFromBeforeTheRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		const slow = 2 * time.Second
		s.tap(func(on *taps) {
			on.renew = func(ctx context.Context, next renewFunc) ([]engine.Nonce, error) {
				time.Sleep(slow / 2)
				failed, err := next(ctx)
				time.Sleep(slow / 2)
				return failed, err
			}
		})
		l := s.acquire(lease.WithoutRenewal())
		time.Sleep(ttl / 2)
		sent := time.Now()
		require.NoError(t, l.Renew(t.Context()))
		require.True(t, sent.Add(validity).Equal(l.Deadline()), "%v, not %v", l.Deadline().Sub(sent), validity)
	})
}

func TestValidityCountsFromBeforeTheSessionWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, config engine.SessionConfig,
				next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				session, err := next(ctx, config)
				time.Sleep(2 * time.Second)
				return session, err
			}
		})
		sent := time.Now()
		l := s.acquire(lease.WithoutRenewal())
		require.True(t, sent.Add(validity).Equal(l.Deadline()), "%v, not %v", l.Deadline().Sub(sent), validity)
	})
}

func TestLateGrantIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		calls := 0
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				calls++
				g, err := grantWithoutTime(ctx, r, next)
				if calls == 1 {
					time.Sleep(ttl)
				}
				return g, err
			}
		})
		l := s.acquire()
		require.NoError(t, l.Err())
		require.Equal(t, 2, calls)
		require.Equal(t, fencing.Token(2), l.Token(), "the first grant is not used")
		synctest.Wait()
		status, err := s.memory.Inspect(t.Context(), "a")
		require.NoError(t, err)
		require.Len(t, status.Holders, 1, "the late grant is released")
	})
}

func TestHolderGivesUpBeforeTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire(lease.WithoutRenewal())
		next, err := s.other().Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.ErrorIs(t, l.Err(), engine.ErrExpired)
		require.Less(t, validity, ttl)
		require.True(t, next.Token().Newer(l.Token()))
	})
}
