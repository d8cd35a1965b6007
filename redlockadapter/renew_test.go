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

// acquireFor takes a lock for a session of its own.
func acquireFor(t testing.TB, b *redlockadapter.Backend, resources ...fencing.Resource) Held {
	t.Helper()
	held, grant, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, resources...))
	require.NoError(t, err)
	require.Equal(t, grant.Token, held.Token)
	return held
}

// requireHolder checks that a lock is held with this token, or free.
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

// A renewal at the very end of a lease keeps its token or is refused. It never
// takes the lock under another token.
func TestARenewalAsTheLeaseRunsOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, other *redlockadapter.Backend)
		kept      bool
	}{
		"nobody else came":     {func(*testing.T, *redlockadapter.Backend) {}, true},
		"another one holds it": {func(t *testing.T, b *redlockadapter.Backend) { acquireFor(t, b, "a") }, false},
		"another one had it once": {func(t *testing.T, b *redlockadapter.Backend) {
			require.NoError(t, b.Release(t.Context(), acquireFor(t, b, "a")))
		}, false},
		"one lock of the set is taken": {func(t *testing.T, b *redlockadapter.Backend) { acquireFor(t, b, "b") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 5).init(t)
				b, other := f.backend(t), f.backend(t)
				held := acquireFor(t, b, "a", "b")
				pass(virtualTTL)
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

// A lease that ran out is not extended where the floor was raised since: the lock
// may have been granted in the other mode meanwhile.
func TestARenewalAfterTheFloorWasRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		held, current := acquireFor(t, b, "a"), acquireFor(t, b, "b")
		goal := recovery.Goal{Version: 1, Fleet: b.NodeStatuses(t.Context())[0].Report.Live.Fleet, Floor: held.Token + 100, Ceiling: fencing.MaxToken}
		for node := range 3 {
			require.NoError(t, b.Advance(t.Context(), node, goal))
		}
		require.NoError(t, b.Renew(t.Context(), []Held{current})[0], "what is held goes on")
		pass(virtualTTL)
		require.ErrorIs(t, b.Renew(t.Context(), []Held{held})[0], engine.ErrLost)
	})
}

// A renewal on its way while the lease runs out and another one takes the lock.
func TestARenewalThatIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other := f.backend(t), f.backend(t)
		held := acquireFor(t, b, "a")
		pass(virtualTTL - 50*time.Millisecond)
		for _, n := range f.nodes {
			n.setDelay(200 * time.Millisecond)
		}
		renewed := make(chan error)
		go func() { renewed <- b.Renew(t.Context(), []Held{held})[0] }()
		pass(10 * time.Millisecond)
		for _, n := range f.nodes {
			n.setDelay(0)
		}
		pass(50 * time.Millisecond) // it has run out, and the renewal is on its way
		next := acquireFor(t, other, "a")
		require.True(t, next.Token.Newer(held.Token))
		require.ErrorIs(t, <-renewed, engine.ErrLost)
		requireHolder(t, other, "a", next.Token)
	})
}

// A node takes a lease back that it lost, unless it accepted something larger.
func TestARenewalBringsNodesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		f.nodes[2].stop()
		held := acquireFor(t, b, "a")
		f.nodes[2].start(t) // with a new life: it votes after its quarantine
		for range 5 {
			pass(virtualTTL / 2)
			require.NoError(t, b.Renew(ctx, []Held{held})[0])
		}
		require.Len(t, live(t, b), 3)
		f.nodes[0].stop() // the third node has a floor above the token, and refuses
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrUncertain)
		f.nodes[0].restart(t, true)
		pass(3 * virtualTTL)
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken, "two nodes have moved on")
		next := acquireFor(t, other, "a")
		require.True(t, next.Token.Newer(held.Token))
	})
}

// What the nodes no longer have is lost, and what was released stays released.
func TestRenewReportsOnEachLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		kept, released, taken := acquireFor(t, b, "kept"), acquireFor(t, b, "released"), acquireFor(t, b, "taken")
		require.NoError(t, other.Release(ctx, released))
		require.NoError(t, other.Break(ctx, "taken", taken.Token))
		next := acquireFor(t, other, "taken")
		errs := b.Renew(ctx, []Held{kept, released, taken})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], engine.ErrLost)
		require.ErrorIs(t, errs[2], engine.ErrLost)
		requireHolder(t, b, "released", fencing.None)
		requireHolder(t, b, "taken", next.Token)

		f.nodes[0].stop()
		f.nodes[1].stop()
		require.ErrorIs(t, b.Renew(ctx, []Held{kept})[0], engine.ErrUncertain, "one node is no majority")
	})
}

// A session does not renew a lease whose time has passed: others may have had the
// lock since.
func TestASessionDoesNotRenewWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, ctx := f.backend(t), t.Context()
		lost := make(chan error, 1)
		s, err := b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: virtualTTL, Clock: f.clock,
			Lost: func(_ engine.Nonce, err error) { lost <- err }})
		require.NoError(t, err)
		_, err = s.Acquire(ctx, request(1, "a"))
		require.NoError(t, err)
		f.clock.Suspend(virtualTTL) // the machine slept, and the nodes did not
		_, err = s.Renew(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, told(t, lost), engine.ErrExpired)
		pass(time.Second) // the session releases it in the background
		acquireFor(t, b, "a")
	})
}

// told returns what a session was told within a minute of virtual time.
func told(t testing.TB, lost chan error) error {
	t.Helper()
	select {
	case err := <-lost:
		return err
	case <-time.After(time.Minute):
		require.FailNow(t, "the session was not told of a loss")
		return nil
	}
}

// Votes that take longer than the lease lasts are no grant.
func TestAGrantIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		f.config.NodeTimeout = virtualTTL
		f.init(t)
		b := f.backend(t)
		for _, n := range f.nodes {
			n.setDelay(virtualTTL / 2)
		}
		_, _, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, "a"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.True(t, strings.Contains(err.Error(), "answered within") || strings.Contains(err.Error(), "longer than the lease"), err)
		for _, n := range f.nodes {
			n.setDelay(0)
		}
		pass(time.Second)
		acquireFor(t, b, "a")
	})
}
