package redlockadapter_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// acquireAlone acquires locks in a new session.
func acquireAlone(t testing.TB, b *redlockadapter.Backend, resources ...fencing.Resource) Held {
	t.Helper()
	held, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, resources...))
	require.NoError(t, err)
	return held
}

// requireHolder checks that a lock is held with this token, or free for None.
func requireHolder(t testing.TB, b *redlockadapter.Backend, resource fencing.Resource, token fencing.Token) {
	t.Helper()
	status, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	if token == fencing.None {
		require.Empty(t, status.Holders)
		return
	}
	require.Len(t, status.Holders, 1)
	require.Equal(t, token, status.Holders[0].Token)
}

// A renewal of a lease that has just expired keeps its token or is refused. It never
// takes the lock with another token.
func TestRenewalOfAnExpiredLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, other *redlockadapter.Backend)
		kept      bool
	}{
		"no other attempt": {func(*testing.T, *redlockadapter.Backend) {}, true},
		"another holder":   {func(t *testing.T, b *redlockadapter.Backend) { acquireAlone(t, b, "a") }, false},
		"another holder released it": {func(t *testing.T, b *redlockadapter.Backend) {
			require.NoError(t, b.Release(t.Context(), acquireAlone(t, b, "a")))
		}, false},
		"another holder of one lock of the set": {func(t *testing.T, b *redlockadapter.Backend) {
			acquireAlone(t, b, "b")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 5).init(t)
				b, other := f.backend(t), f.backend(t)
				held := acquireAlone(t, b, "a", "b")
				advance(virtualTTL)
				c.meanwhile(t, other)
				err := b.Renew(t.Context(), []Held{held})[0]
				if c.kept {
					require.NoError(t, err)
					requireHolder(t, other, "a", held.Token)
					requireHolder(t, other, "b", held.Token)
					return
				}
				require.ErrorIs(t, err, engine.ErrLost)
				for _, name := range held.Resources {
					status, err := other.Inspect(t.Context(), name)
					require.NoError(t, err)
					for _, h := range status.Holders {
						require.True(t, h.Token.Newer(held.Token), "%s is held with %d", name, h.Token)
					}
				}
			})
		})
	}
}

// A renewal never takes back time that a longer one gave: it may be a late copy. Neither does a
// late acquire.
func TestLateRenewalDoesNotShorten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other := f.backend(t), f.backend(t)
		held, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL/4, request(1, "a"))
		require.NoError(t, err)
		longer := held
		longer.TTL, longer.Metadata = virtualTTL, map[string]string{"done": "40%"}
		require.Equal(t, []error{nil, nil}, b.Renew(t.Context(), []Held{longer, held}))
		advance(virtualTTL / 2)
		requireHolder(t, other, "a", held.Token)
		advance(virtualTTL / 2)
		requireHolder(t, other, "a", fencing.None)
		longer.TTL = virtualTTL + 1
		require.ErrorIs(t, b.Renew(t.Context(), []Held{longer})[0], engine.ErrInvalid,
			"nodes wait the longest TTL before they vote")
	})
}

// An expired lease is not taken back by a node whose floor was raised since: the lock may
// have been granted in correctness mode meanwhile.
func TestRenewalAfterTheFloorWasRaised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		held, current := acquireAlone(t, b, "a"), acquireAlone(t, b, "b")
		goal := recovery.Goal{Version: 1, Fleet: b.NodeStatuses(t.Context())[0].Report.Live.Fleet, Floor: held.Token + 100,
			Ceiling: fencing.MaxToken}
		for node := range 3 {
			require.NoError(t, b.Advance(t.Context(), node, f.nodes[node].server(), goal))
		}
		require.NoError(t, b.Renew(t.Context(), []Held{current})[0], "a current lease is extended")
		advance(virtualTTL)
		require.ErrorIs(t, b.Renew(t.Context(), []Held{held})[0], engine.ErrLost)
	})
}

// The lease expires and another attempt takes the lock while a renewal is in flight.
func TestRenewalOvertakenByAnotherHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other := f.backend(t), f.backend(t)
		held := acquireAlone(t, b, "a")
		advance(virtualTTL - 50*time.Millisecond)
		for _, n := range f.nodes {
			n.setDelay(200 * time.Millisecond)
		}
		renewed := make(chan error)
		go func() { renewed <- b.Renew(t.Context(), []Held{held})[0] }()
		advance(10 * time.Millisecond)
		for _, n := range f.nodes {
			n.setDelay(0)
		}
		advance(50 * time.Millisecond) // it has expired, and the renewal is in flight
		next := acquireAlone(t, other, "a")
		require.True(t, next.Token.Newer(held.Token))
		require.ErrorIs(t, <-renewed, engine.ErrLost)
		requireHolder(t, other, "a", next.Token)
	})
}

// Renew reports an error for each lease. A released lease stays released.
func TestRenewReportsOnEachLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		kept, released, taken := acquireAlone(t, b, "kept"), acquireAlone(t, b, "released"), acquireAlone(t, b, "taken")
		require.NoError(t, other.Release(ctx, released))
		require.NoError(t, other.Break(ctx, "taken", taken.Token))
		next := acquireAlone(t, other, "taken")
		errs := b.Renew(ctx, []Held{kept, released, taken})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], engine.ErrLost)
		require.ErrorIs(t, errs[2], engine.ErrLost)
		requireHolder(t, b, "released", fencing.None)
		requireHolder(t, b, "taken", next.Token)

		f.nodes[0].stop()
		f.nodes[1].stop()
		require.ErrorIs(t, b.Renew(ctx, []Held{kept})[0], engine.ErrUncertain, "one node is not a quorum")
	})
}

// A renewal that cannot succeed any more waits for the remaining nodes: if a quorum has lost the lease, its
// holder must know.
func TestRenewalWaitsForAQuorumThatLostTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		require.NoError(t, other.Break(ctx, "a", held.Token))
		synctest.Wait() // until all nodes have received it, not only a quorum
		f.nodes[0].stop()
		f.nodes[2].setDelay(100 * time.Millisecond)
		began := now()
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
		require.GreaterOrEqual(t, now().Sub(began), 100*time.Millisecond)
	})
}

// lostError returns the error that a session reports for a lost lease.
func lostError(t testing.TB, lost chan error) error {
	t.Helper()
	select {
	case err := <-lost:
		return err
	case <-time.After(time.Minute):
		require.FailNow(t, "the session does not report a lost lease")
		return nil
	}
}

// Votes that take longer than the lease lasts are not a grant.
func TestSlowVotesAreNotAGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		f.config.NodeTimeout = virtualTTL
		f.init(t)
		b := f.backend(t)
		for _, n := range f.nodes {
			n.setDelay(virtualTTL / 2)
		}
		_, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, "a"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.True(t, strings.Contains(err.Error(), "answered within") || strings.Contains(err.Error(),
			"longer than the lease"), err)
		for _, n := range f.nodes {
			n.setDelay(0)
		}
		advance(time.Second)
		acquireAlone(t, b, "a")
	})
}
