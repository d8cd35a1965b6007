package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

func TestReentryRefusesOtherOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.acquire(lease.WithHolder("x"))
		for name, option := range map[string]lease.AcquireOption{
			"ttl":      lease.WithTTL(time.Hour),
			"renewal":  lease.WithoutRenewal(),
			"permits":  lease.WithPermits(2),
			"shared":   lease.WithShared(),
			"metadata": lease.WithMetadata(map[string]string{"k": "v"}),
		} {
			_, err := s.client.Acquire(t.Context(), "a", lease.WithHolder("x"), option)
			require.ErrorIs(t, err, engine.ErrInvalid, name)
		}
		_, err := s.client.Acquire(t.Context(), "a", lease.WithHolder("x"), lease.WithMode(engine.Efficiency))
		require.ErrorIs(t, err, engine.ErrModeMismatch)
		s.acquire(lease.WithHolder("x"), lease.WithTTL(ttl))
	})
}

func TestReentryIntoAnExpiredLeaseAcquiresAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		first := s.acquire(lease.WithHolder("x"))
		s.clock.Suspend(ttl) // timers do not notice it
		second := s.acquire(lease.WithHolder("x"))
		require.True(t, second.Token().Newer(first.Token()))
		require.ErrorIs(t, first.Err(), engine.ErrExpired)
	})
}

func TestHolderMayAcquireAnotherSetAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		require.NoError(t, s.acquire(lease.WithHolder("x")).Release(t.Context()))
		set := s.acquire(lease.WithHolder("x"), lease.WithSet("b"))
		require.NoError(t, set.Release(t.Context()))
		lost := s.acquire(lease.WithHolder("x"))
		require.NoError(t, s.memory.Break(t.Context(), "a", lost.Token()))
		<-lost.Done()
		s.acquire(lease.WithHolder("x"), lease.WithSet("b"))
	})
}

func TestSharedLeasesOfOneHolderMayOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.acquire(lease.WithHolder("x"), lease.WithShared())
		s.acquire(lease.WithHolder("x"), lease.WithShared(), lease.WithSet("b"))
	})
}
