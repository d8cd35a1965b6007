package redlockadapter_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// field returns a field of a lock's record on a node, in its latest life.
func (f *virtualFleet) field(node int, lock, name string) string {
	mini := f.nodes[node].mini
	life, _ := mini.Get("{" + redlockadapter.DefaultNamespace + "}:life")
	return mini.HGet("{"+redlockadapter.DefaultNamespace+"}:"+life+":lock:"+lock, name)
}

// holders returns the nodes that hold all locks of a lease with its token.
func (f *virtualFleet) holders(lease Held) (nodes []int) {
	for i := range f.nodes {
		held := true
		for _, lock := range lease.Resources {
			held = held && f.field(i, string(lock), "nonce") == lease.Name &&
				f.field(i, string(lock), "token") == lease.Token.String()
		}
		if held {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// A lease is on a quorum of the nodes when it is granted, and soon on all of them.
func TestLeaseIsSoonOnAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		b := f.backend(t)
		for _, lock := range []fencing.Resource{"a", "b", "c", "a"} {
			held := acquireAlone(t, b, lock)
			require.Len(t, f.holders(held), 3)
			advance(50 * time.Millisecond)
			require.Len(t, f.holders(held), 5)
			require.NoError(t, b.Release(t.Context(), held))
			advance(time.Second)
			require.Empty(t, f.holders(held))
		}
	})
}

// A lease that is released soon is never sent to the other nodes.
func TestShortLeaseAsksAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		b := f.backend(t)
		require.NoError(t, b.Release(t.Context(), acquireAlone(t, b, "a")))
		advance(time.Second)
		acquires := 0
		for _, n := range f.nodes {
			acquires += n.countAcquires()
		}
		require.Equal(t, 3, acquires)
	})
}

// Processes that list the nodes in another order ask the same nodes first, so that those who contend for
// a lock meet there.
func TestProcessesAskTheSameNodesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		b := f.backend(t)
		slices.Reverse(f.config.Nodes)
		reversed := f.backend(t)
		f.config.Nodes = append(f.config.Nodes[2:], f.config.Nodes[:2]...)
		rotated := f.backend(t)
		for _, lock := range []fencing.Resource{"a", "b", "c", "d", "e", "f"} {
			held := acquireAlone(t, b, lock)
			advance(50 * time.Millisecond) // all nodes have its token, so that a quorum decides the next attempts
			require.NoError(t, b.Release(t.Context(), held))
			synctest.Wait()
			var first []int
			for _, process := range []*redlockadapter.Backend{b, reversed, rotated} {
				held := acquireAlone(t, process, lock)
				nodes := f.holders(held)
				require.Len(t, nodes, 3)
				if first == nil {
					first = nodes
				}
				require.Equal(t, first, nodes, "lock %s", lock)
				require.NoError(t, process.Release(t.Context(), held))
				synctest.Wait() // it is released on all nodes
			}
		}
	})
}

// A renewal gives the lease to the nodes that were not asked. They get the release too.
func TestRenewedLeaseIsReleasedOnAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		b := f.backend(t)
		held := acquireAlone(t, b, "a")
		require.NoError(t, b.Renew(t.Context(), []Held{held})[0])
		synctest.Wait()
		require.Len(t, f.holders(held), 5)
		require.NoError(t, b.Release(t.Context(), held))
		synctest.Wait()
		require.Empty(t, f.holders(held))
	})
}

// An attempt does not wait for a slow node if the others are fast, and later attempts do not
// ask it first.
func TestSlowNodeIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		b := f.backend(t)
		held := acquireAlone(t, b, "a")
		slow := f.nodes[f.holders(held)[0]]
		advance(50 * time.Millisecond) // all nodes accept its token
		require.NoError(t, b.Release(t.Context(), held))
		took := func() time.Duration {
			began := engine.MonotonicClock().Now()
			held := acquireAlone(t, b, "a")
			took := engine.MonotonicClock().Now().Since(began)
			require.NoError(t, b.Release(t.Context(), held))
			advance(2 * time.Second) // the keeper measures the node too
			return took
		}
		const delay = 200 * time.Millisecond // below the timeout of a node
		slow.setDelay(delay)
		first := took()
		require.Greater(t, first, time.Duration(0), "it was asked first")
		require.Less(t, first, delay)
		require.Zero(t, took())
		slow.setDelay(0)
		advance(time.Minute)
		asked := slow.countAcquires()
		require.Zero(t, took())
		require.Greater(t, slow.countAcquires(), asked, "it is fast again")
	})
}
