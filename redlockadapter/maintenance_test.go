package redlockadapter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// recoverNode restarts a node and waits until all nodes vote. It calls renew in time for a lease with
// virtualTTL.
func (f *virtualFleet) recoverNode(t testing.TB, b *redlockadapter.Backend, node int, renew func()) {
	t.Helper()
	f.nodes[node].restart(t, true)
	for began := now(); ; {
		advance(virtualTTL / 3)
		renew()
		if len(live(t, b)) == len(f.nodes) {
			return
		}
		require.Less(t, now().Sub(began), 3*virtualTTL, "node %d does not vote", node)
	}
}

// A lease survives the restart of every node, one at a time with all nodes voting in between: a restarted
// node takes it back. Attempts of others do not change that.
func TestMaintenanceKeepsLeases(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{3, 5} {
		for _, contended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d nodes, contended %v", nodes, contended), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newVirtualFleet(t, nodes).init(t)
					b, other := f.backend(t), f.backend(t)
					held := acquireAlone(t, b, "a", "b")
					renew := func() {
						if contended {
							for _, lock := range []fencing.Resource{"a", "b"} {
								_, err := other.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, lock))
								require.ErrorIs(t, err, engine.ErrHeld)
							}
							advance(100 * time.Millisecond) // it is withdrawn
						}
						require.NoError(t, b.Renew(t.Context(), []Held{held})[0])
					}
					for node := range nodes {
						f.recoverNode(t, b, node, renew)
					}
					require.Len(t, f.holders(held), nodes, "the lease is on all nodes again")
					requireHolder(t, other, "a", held.Token)
					require.NoError(t, other.Renew(t.Context(), []Held{held})[0])
					require.NoError(t, b.Release(t.Context(), held))
					next := acquireAlone(t, other, "a")
					require.True(t, next.Token.Newer(held.Token))
				})
			})
		}
	}
}

// A lease survives the restart of every node, one at a time, also if its callers find it on the nodes before they
// renew it, as HTTP callers do. The next node restarts before the lease is renewed on the one that votes again, so the
// lease is on one node only.
func TestMaintenanceKeepsFoundLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		renew := func() {
			found, err := other.Find(ctx, "a", held.Token)
			require.NoError(t, err)
			require.Equal(t, held, found)
			require.NoError(t, other.Renew(ctx, []Held{found})[0])
		}
		advance(100 * time.Millisecond) // all nodes have it
		renew()
		for node := range f.nodes {
			f.nodes[node].restart(t, true)
			advance(100 * time.Millisecond) // the processes connect again
			requireHolder(t, other, "a", held.Token)
			for step := 1; len(live(t, b)) < len(f.nodes); step++ {
				if step%10 == 0 {
					renew()
				}
				advance(virtualTTL / 30)
			}
			list, err := other.List(ctx, "", "", 1)
			require.NoError(t, err)
			require.Len(t, list, 1)
		}
		require.NoError(t, other.Release(ctx, held))
		requireHolder(t, other, "a", fencing.None)
	})
}

// A lease that was released is not shown as held while one node that missed the release is up, and another one that
// confirmed it is down.
func TestReleasedLeaseIsNotShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		require.NoError(t, b.Renew(ctx, []Held{held})[0])
		synctest.Wait()
		f.nodes[2].onRelease(func() error { return errRefused })
		require.NoError(t, b.Release(ctx, held))
		require.Equal(t, held.Name, f.field(2, "a", "nonce"))
		f.nodes[0].stop()
		requireHolder(t, other, "a", fencing.None)
		_, err := other.Find(ctx, "a", held.Token)
		require.ErrorIs(t, err, engine.ErrUnavailable)
	})
}

// A node that takes a lease back keeps its counter: the next token exceeds both.
func TestTakenBackLeaseKeepsTheCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		held := acquireAlone(t, b, "a")
		f.recoverNode(t, b, 0, func() { require.NoError(t, b.Renew(t.Context(), []Held{held})[0]) })
		floor := voter(t, b, 0).Floor
		require.Greater(t, floor, held.Token)
		require.NoError(t, b.Renew(t.Context(), []Held{held})[0])
		synctest.Wait()
		require.Equal(t, held.Token.String(), f.field(0, "a", "token"))
		require.Equal(t, floor.String(), f.field(0, "a", "counter"))
		require.NoError(t, b.Release(t.Context(), held))
		f.nodes[2].stop() // node 0 is needed
		require.Greater(t, acquireAlone(t, b, "a").Token, floor)
	})
}

// A process that did not grant a lease finds, renews and breaks it while one node is down and the
// counter of another one is ahead, since that node restarted earlier.
func TestAnyProcessKnowsTheGrantedToken(t *testing.T) {
	t.Parallel()
	for down := range 3 {
		for ahead := range 3 {
			if down == ahead {
				continue
			}
			t.Run(fmt.Sprintf("node %d is ahead, node %d down", ahead, down), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newVirtualFleet(t, 3).init(t)
					b, other, ctx := f.backend(t), f.backend(t), t.Context()
					for _, lock := range []fencing.Resource{"a", "b", "c"} { // each asks other nodes first
						require.NoError(t, b.Release(ctx, acquireAlone(t, b, lock)))
					}
					f.recoverNode(t, b, ahead, func() {})
					var all []Held
					for _, lock := range []fencing.Resource{"a", "b", "c"} {
						all = append(all, acquireAlone(t, b, lock))
					}
					advance(100 * time.Millisecond)
					f.nodes[down].stop()
					for _, held := range all {
						lock := held.Resources[0]
						found, err := other.Find(ctx, lock, held.Token)
						require.NoError(t, err)
						require.Equal(t, held, found)
						require.NoError(t, other.Renew(ctx, []Held{found})[0])
						requireHolder(t, other, lock, held.Token)
						require.NoError(t, other.Break(ctx, lock, held.Token))
						requireHolder(t, other, lock, fencing.None)
						require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
					}
				})
			})
		}
	}
}

// A broken lease is never renewed, whatever arrives late.
func TestBrokenLeaseStaysBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		old := acquireAlone(t, b, "a")
		require.NoError(t, b.Release(ctx, old))
		held := acquireAlone(t, b, "a")
		require.NoError(t, other.Break(ctx, "a", held.Token))
		require.NoError(t, other.Release(ctx, old), "a late release of an older lease")
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
		requireHolder(t, other, "a", fencing.None)

		// A node that had lost the lease remembers the break too.
		held = acquireAlone(t, b, "a")
		f.recoverNode(t, b, 1, func() { require.NoError(t, b.Renew(ctx, []Held{held})[0]) })
		f.nodes[2].setDelay(time.Second) // the break arrives after the renewal
		require.NoError(t, other.Break(ctx, "a", held.Token))
		require.NoError(t, other.Release(ctx, old))
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
	})
}

// The end of a lease is remembered by nodes that lost it too, and until their records are swept.
func TestEndingsAreRememberedByAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		f.recoverNode(t, b, 0, func() { require.NoError(t, b.Renew(ctx, []Held{held})[0]) })
		f.nodes[1].restart(t, true)
		advance(virtualTTL / 3)
		require.NoError(t, b.Renew(ctx, []Held{held})[0])
		require.NoError(t, other.Break(ctx, "a", held.Token)) // while node 1 is in its quarantine
		synctest.Wait()
		require.NoError(t, b.Sweep(ctx))
		advance(2 * virtualTTL)
		require.Len(t, live(t, b), 3)
		require.NoError(t, b.Sweep(ctx))
		for node := range f.nodes {
			require.Equal(t, held.Token.String(), f.field(node, "a", "ended"), "node %d", node)
		}
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
	})
}

// A node does not take back a lease if another attempt, which may have been granted, had the lock since.
func TestRestartedNodeRefusesAnOlderLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, b, "a")
		for node := range 2 {
			f.nodes[node].restart(t, true)
		}
		advance(3 * virtualTTL) // the lease expires
		require.Len(t, live(t, b), 3)
		next := acquireAlone(t, other, "a")
		advance(2 * virtualTTL) // the next lease expires too
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
		require.NoError(t, other.Renew(ctx, []Held{next})[0])
	})
}
