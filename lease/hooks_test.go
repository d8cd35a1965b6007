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

func TestSlowHookDoesNotDelayContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		s := newSetup(t, lease.WithHooks(lease.Hooks{Lost: func(context.Context, lease.Event) { <-block }}))
		var leases []*lease.Lease
		for _, name := range []string{"a", "b"} {
			l, err := s.client.Acquire(t.Context(), fencing.Resource(name))
			require.NoError(t, err)
			leases = append(leases, l)
		}
		s.memory.Fail(engine.ErrUnavailable)
		time.Sleep(validity)
		synctest.Wait()
		for _, l := range leases {
			require.Error(t, l.Context().Err())
		}
		close(block)
		s.memory.Fail(nil)
	})
}

func TestSlowHookDoesNotStopRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		s := newSetup(t, lease.WithHooks(lease.Hooks{Renewed: func(lease.Renewal) { <-block }}))
		l := s.acquire()
		time.Sleep(time.Minute)
		require.NoError(t, l.Err())
		close(block)
	})
}

// TestHooksReportEachLeaseOnce checks that a program can count leases by hooks.
func TestHooksReportEachLeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		outer, inner := s.acquire(lease.WithHolder("x")), s.acquire(lease.WithHolder("x"))
		require.NoError(t, inner.Release(t.Context()))
		require.NoError(t, outer.Release(t.Context()))
		s.acquire(lease.WithHolder("x"))
		third := s.acquire(lease.WithHolder("x"))
		require.NoError(t, s.memory.Break(context.Background(), "a", third.Token()))
		synctest.Wait()
		events := s.events.read()
		require.Len(t, events.acquired, 4)
		require.Len(t, events.released, 2)
		require.Len(t, events.lost, 2)
	})
}
