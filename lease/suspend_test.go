package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// A suspend must end the lease, though no timer has seen any time pass.
func TestSuspendEndsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.clock.Suspend(ttl)
		require.ErrorIs(t, l.Err(), lease.ErrExpired, "at once, when asked")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire(lease.WithoutRenewal(), lease.WithTTL(time.Hour))
		s.clock.Suspend(50 * time.Minute)
		require.LessOrEqual(t, time.Until(l.Deadline()), 10*time.Minute)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.clock.Suspend(ttl)
		woke := time.Now()
		<-l.Done()
		require.LessOrEqual(t, time.Since(woke), time.Second, "by itself within a second of waking")
	})
}
