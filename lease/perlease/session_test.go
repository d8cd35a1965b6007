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

// losses records the losses that a session reports.
type losses struct {
	mu     sync.Mutex
	errors map[engine.Nonce]error
}

func (l *losses) of(nonce engine.Nonce) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors[nonce]
}

func open(t *testing.T, m *memory) (*perlease.Session, *losses) {
	t.Helper()
	l := &losses{errors: map[engine.Nonce]error{}}
	s := perlease.NewSession(m, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl, Clock: clock, Lost: func(nonce engine.Nonce, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.errors[nonce] = err
	}})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, l
}

func request(nonce engine.Nonce, names ...fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: names}
}

func TestUnansweredAcquireIsReleasedBeforeTheNext(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	m.acquired = func(engine.Held) error { return engine.ErrUncertain }
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUncertain)
	m.acquired = nil
	grant, err := s.Acquire(t.Context(), request(1, "a"))
	require.NoError(t, err, "the earlier grant of the attempt does not block it")
	require.Equal(t, fencing.Token(2), grant.Token)
	require.Empty(t, m.released[0].Name)
}

func TestUnansweredAcquireIsReleasedByRelease(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	m.acquired = func(engine.Held) error { return errors.New("connection reset") }
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.Error(t, err)
	require.Len(t, m.locks, 1)
	m.fault = engine.ErrUnavailable
	require.ErrorIs(t, s.Release(t.Context(), 1), engine.ErrUnavailable)
	m.fault = nil
	require.NoError(t, s.Release(t.Context(), 1), "a failed release can be repeated")
	require.Empty(t, m.locks)
}

func TestLossErrorOfTheEngineDoesNotEndTheSession(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	m.fault = engine.ErrTaken
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.NotErrorIs(t, err, engine.ErrLost)
	require.ErrorIs(t, err, engine.ErrUncertain)
}

func TestRenewReportsEachLease(t *testing.T) {
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
	extended, err := s.Renew(t.Context())
	require.NoError(t, err)
	require.Equal(t, []engine.Nonce{1}, extended)
	require.ErrorIs(t, lost.of(3), engine.ErrTaken)
	require.NoError(t, lost.of(2))
	m.set(func() { m.renewing = nil })
	extended, err = s.Renew(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []engine.Nonce{1, 2}, extended, "the lost lease is gone")

	m.set(func() { m.fault = engine.ErrUnavailable }) // a release of the lost lease may be under way
	_, err = s.Renew(t.Context())
	require.ErrorIs(t, err, engine.ErrUnavailable, "no lease was renewed")
	require.NotErrorIs(t, err, engine.ErrLost)
}

// TestExpiredLeaseIsNotRenewed checks that a late renewal does not take the lock again.
func TestExpiredLeaseIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, lost := open(t, m)
		_, err := s.Acquire(t.Context(), request(1, "a"))
		require.NoError(t, err)
		m.renewing = func(engine.Held) error { t.Error("the engine was called"); return nil }
		time.Sleep(ttl)
		_, err = s.Renew(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lost.of(1), engine.ErrExpired)
		synctest.Wait()
	})
}

func TestHolderOfAMigratingLockHasTimeToFinish(t *testing.T) {
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
		require.NoError(t, lost.of(1))
		time.Sleep(ttl / 4)
		_, err = s.Renew(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lost.of(1), engine.ErrTaken)
		require.ErrorContains(t, lost.of(1), "migrating from efficiency to correctness")
		synctest.Wait()
		require.Empty(t, m.locks, "the lock is free")
	})
}

func TestGrantAfterALongWaitIsRenewedFirst(t *testing.T) {
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
		require.Equal(t, ttl, grant.Sent.Since(began), "the TTL starts with the renewal")

		m.renewing = func(engine.Held) error { return engine.ErrTaken }
		_, err = holder.Acquire(t.Context(), engine.Request{Nonce: 2, Resources: waiting.Resources, Wait: true})
		require.ErrorIs(t, err, engine.ErrUnavailable, "a grant of unknown age is not used")
		synctest.Wait()
	})
}

func TestReleaseEndsAcquireUnderWay(t *testing.T) {
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
		require.ErrorIs(t, s.Withdraw(7), engine.ErrHeld)
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
	report := s.Lose(func(held engine.Held) error {
		if held.Nonce == 1 {
			return engine.ErrTaken
		}
		return nil
	})
	require.NoError(t, lost.of(1))
	report()
	require.ErrorIs(t, lost.of(1), engine.ErrTaken)
	extended, err := s.Renew(t.Context())
	require.NoError(t, err)
	require.Equal(t, []engine.Nonce{2}, extended)

	require.NoError(t, s.Withdraw(2))
	extended, err = s.Renew(t.Context())
	require.NoError(t, err)
	require.Empty(t, extended)
	other := request(2, "other")
	_, err = s.Acquire(t.Context(), other)
	require.NoError(t, err, "the attempt may be repeated")
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, m.locks)
	require.NoError(t, lost.of(2))
}

// A caller repeats a Close that failed, until the leases are released.
func TestFailedCloseIsRepeated(t *testing.T) {
	m := newMemory()
	s, _ := open(t, m)
	_, err := s.Acquire(t.Context(), request(1, "a"))
	require.NoError(t, err)
	m.set(func() { m.fault = engine.ErrUncertain })
	require.ErrorIs(t, s.Close(t.Context()), engine.ErrUncertain)
	require.ErrorIs(t, s.Close(t.Context()), engine.ErrUncertain, "the lease is still held")
	m.set(func() { m.fault = nil })
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, m.locks)
}
