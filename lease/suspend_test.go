package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
)

// TestSuspendEndsTheLease checks that time in suspend counts although timers do not
// run then.
func TestSuspendEndsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		s.clock.Suspend(ttl)
		require.ErrorIs(t, l.Err(), lease.ErrExpired, "Err reports it at once")
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
		require.LessOrEqual(t, time.Since(woke), time.Second, "the context ends within a second")
	})
}
