package perlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/perlease"
)

const ttl = 12 * time.Second

func TestSessionConforms(t *testing.T) {
	leasetest.Run(t, func(*testing.T) leasetest.Subject {
		m := newMemory()
		return leasetest.Subject{
			Backend:     func() engine.Backend { return m },
			Mode:        engine.Efficiency,
			TTL:         ttl,
			Clock:       leasetest.NewClock(),
			Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
		}
	}, leasetest.InBubble())
}

// losses is what a session has told its holder.
type losses struct {
	mu  sync.Mutex
	why map[engine.Nonce]error
}

func (l *losses) told(nonce engine.Nonce) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why[nonce]
}

func open(t *testing.T, m *memory) (*perlease.Session, *losses) {
	t.Helper()
	l := &losses{why: map[engine.Nonce]error{}}
	s := perlease.NewSession(m, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl, Clock: clock, Lost: func(nonce engine.Nonce, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.why[nonce] = err
	}})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, l
}

func request(nonce engine.Nonce, names ...fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: names}
}

func TestAnUnansweredAcquireIsEndedBeforeTheNext(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	m.acquired = func(engine.Held) error { return engine.ErrUncertain }
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUncertain)
	m.acquired = nil
	grant, err := s.Acquire(t.Context(), request(1, "a"))
	require.NoError(t, err, "its own unheard grant is not in the way")
	require.Equal(t, fencing.Token(2), grant.Token)
	require.Empty(t, m.released[0].Name)
}

func TestAnUnansweredAcquireIsEndedByItsRelease(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	m.acquired = func(engine.Held) error { return errors.New("connection reset") }
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.Error(t, err)
	require.Len(t, m.locks, 1)
	m.fault = engine.ErrUnavailable
	require.ErrorIs(t, s.Release(t.Context(), 1), engine.ErrUnavailable)
	m.fault = nil
	require.NoError(t, s.Release(t.Context(), 1), "a release that failed is tried again")
	require.Empty(t, m.locks)
}

func TestALossOfTheEngineIsNoLossOfTheSession(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	m.fault = engine.ErrTaken
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.NotErrorIs(t, err, engine.ErrLost)
	require.ErrorIs(t, err, engine.ErrUncertain)
}

func TestRenewReportsOnEach(t *testing.T) {
	m := newMemory()
	s, lost := open(t, m)
	for nonce, name := range map[engine.Nonce]fencing.Resource{1: "a", 2: "b", 3: "c"} {
		_, err := s.Acquire(t.Context(), request(nonce, name))
		require.NoError(t, err)
	}
	m.renewing = func(held engine.Held) error {
		switch held.Nonce {
		case 2:
			return engine.ErrUnavailable
		case 3:
			return engine.ErrTaken
		}
		return nil
	}
	failed, err := s.Renew(t.Context())
	require.NoError(t, err)
	require.Equal(t, []engine.Nonce{2}, failed)
	require.ErrorIs(t, lost.told(3), engine.ErrTaken)
	require.NoError(t, lost.told(2))
	require.ElementsMatch(t, []engine.Nonce{1, 2}, s.Nonces())

	m.set(func() { m.fault = engine.ErrUnavailable }) // a release of the lost lease may be under way
	_, err = s.Renew(t.Context())
	require.ErrorIs(t, err, engine.ErrUnavailable, "nothing was renewed, and this is why")
	require.NotErrorIs(t, err, engine.ErrLost)
}

// A renewal that comes as the lease runs out must not take the lock anew.
func TestALeaseWhoseTimeHasPassedIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, lost := open(t, m)
		_, err := s.Acquire(t.Context(), request(1, "a"))
		require.NoError(t, err)
		m.renewing = func(engine.Held) error { t.Error("it was asked for"); return nil }
		time.Sleep(ttl)
		_, err = s.Renew(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lost.told(1), engine.ErrExpired)
		synctest.Wait()
	})
}

func TestAHolderOfAMovingLockHasTimeToFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, lost := open(t, m)
		_, err := s.Acquire(t.Context(), request(1, "a"))
		require.NoError(t, err)
		m.renewing = func(engine.Held) error {
			return &engine.MigratingError{Resource: "a", From: engine.Efficiency, To: engine.Correctness}
		}
		time.Sleep(ttl / 2)
		_, err = s.Renew(t.Context())
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NoError(t, lost.told(1))
		time.Sleep(ttl / 4)
		_, err = s.Renew(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lost.told(1), engine.ErrTaken)
		require.ErrorContains(t, lost.told(1), "moving from efficiency to correctness")
		synctest.Wait()
		require.Empty(t, m.locks, "and the lock is free")
	})
}

func TestAGrantAfterALongWaitIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		holder, _ := open(t, m)
		s, _ := open(t, m)
		_, err := holder.Acquire(t.Context(), request(1, "a"))
		require.NoError(t, err)
		began := clock.Now()
		waiting := request(1, "a")
		waiting.Wait = true
		grant, err := s.Acquire(t.Context(), waiting)
		require.NoError(t, err)
		require.Equal(t, ttl, grant.Sent.Since(began), "its time counts from the renewal")

		m.renewing = func(engine.Held) error { return engine.ErrTaken }
		_, err = holder.Acquire(t.Context(), engine.Request{Nonce: 2, Resources: waiting.Resources, Wait: true})
		require.ErrorIs(t, err, engine.ErrUnavailable, "a grant of unknown age is not used")
		synctest.Wait()
	})
}

func TestReleaseEndsAnAcquireUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		holder, _ := open(t, m)
		s, _ := open(t, m)
		_, err := holder.Acquire(t.Context(), request(1, "a"))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			waiting := request(7, "a")
			waiting.Wait = true
			_, err := s.Acquire(t.Context(), waiting)
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Release(t.Context(), 7))
		require.ErrorIs(t, <-ended, engine.ErrHeld)
		require.True(t, s.Ended(7))
		_, err = s.Acquire(t.Context(), request(7, "a"))
		require.ErrorIs(t, err, engine.ErrHeld, "a late copy is refused")
	})
}

func TestLoseAndWithdraw(t *testing.T) {
	m := newMemory()
	s, lost := open(t, m)
	for nonce, name := range map[engine.Nonce]fencing.Resource{1: "a", 2: "b"} {
		_, err := s.Acquire(t.Context(), request(nonce, name))
		require.NoError(t, err)
	}
	tell := s.Lose(func(held engine.Held) error {
		if held.Nonce == 1 {
			return engine.ErrTaken
		}
		return nil
	})
	require.NoError(t, lost.told(1))
	tell()
	require.ErrorIs(t, lost.told(1), engine.ErrTaken)
	require.Equal(t, []engine.Nonce{2}, s.Nonces())

	s.Withdraw(2)
	require.Empty(t, s.Nonces())
	require.False(t, s.Ended(2))
	other := request(2, "other")
	_, err := s.Acquire(t.Context(), other)
	require.NoError(t, err, "it may be asked for again")
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, m.locks)
	require.NoError(t, lost.told(2))
}
