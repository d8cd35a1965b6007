package redlockadapter_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// without returns the fleet of a process that does not reach a node until it is connected.
func (f *virtualFleet) without(node int) (cut *virtualFleet, connect func()) {
	var connected atomic.Bool
	one := *f
	one.config.Nodes = append([]*redis.Options(nil), f.config.Nodes...)
	dial := f.config.Nodes[node].Dialer
	one.config.Nodes[node] = &redis.Options{Addr: f.nodes[node].name,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !connected.Load() {
				return nil, errRefused
			}
			return dial(ctx, network, addr)
		}}
	return &one, func() { connected.Store(true) }
}

// A new server behind an address does not vote yet. It does not confirm a break, because the holder may reach the
// server that has lost the address. Another call finds the lease where the break is missing, and completes it.
func TestBreakIsNotConfirmedByServersThatDoNotVote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5)
		moving := f.movable(0)
		f.init(t)
		holder, ctx := f.backend(t), t.Context()
		held := acquireAlone(t, holder, "a")
		advance(100 * time.Millisecond) // it is on all nodes
		moving.move(newVirtualNode(t, 100))
		cut, _ := f.without(4)
		other := cut.backend(t)
		f.nodes[3].onRelease(func() error { return errRefused })
		require.ErrorIs(t, other.Break(ctx, "a", held.Token), engine.ErrUncertain)
		require.NoError(t, holder.Renew(ctx, []Held{held})[0], "the old server and nodes 3 and 4 are a quorum")

		require.ErrorIs(t, other.Break(ctx, "a", held.Token), engine.ErrUncertain, "node 3 still has the lease")
		f.nodes[3].onRelease(nil)
		require.NoError(t, other.Break(ctx, "a", held.Token))
		require.ErrorIs(t, holder.Renew(ctx, []Held{held})[0], engine.ErrTaken)
		require.ErrorIs(t, other.Break(ctx, "a", held.Token), engine.ErrNotHeld)
	})
}

// A server that has lost its address does not confirm a break, even on an open connection: its successor would take
// the lease back.
func TestBreakIsNotConfirmedByServersWithoutTheirAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		moving := f.movable(0)
		f.init(t)
		holder, ctx := f.backend(t), t.Context()
		cut, connect := f.without(2)
		other := cut.backend(t)
		held := acquireAlone(t, holder, "a")
		advance(100 * time.Millisecond)
		moving.move(newVirtualNode(t, 100))
		require.ErrorIs(t, other.Break(ctx, "a", held.Token), engine.ErrUncertain)
		connect()
		advance(2 * time.Second)
		if err := other.Break(ctx, "a", held.Token); err != nil {
			require.ErrorIs(t, err, engine.ErrNotHeld, "the break was sent again")
		}
		require.Error(t, holder.Renew(ctx, []Held{held})[0])
	})
}

// A node that restarts while a break waits for another one does not confirm it: it has forgotten the break, and the
// holder may have renewed the lease on the others since.
func TestBreakIsNotConfirmedByNodesThatHaveForgottenIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		holder, ctx := f.backend(t), t.Context()
		cut, _ := f.without(2)
		other := cut.backend(t)
		held := acquireAlone(t, holder, "a")
		advance(100 * time.Millisecond)
		lose := sync.OnceFunc(func() {
			advance(10 * time.Millisecond) // node 0 has confirmed the break
			f.nodes[0].restart(t, true)
		})
		f.nodes[1].onRelease(func() error { lose(); return nil })
		require.ErrorIs(t, other.Break(ctx, "a", held.Token), engine.ErrUncertain)
	})
}

// A node may have accepted a lower token for an attempt than the one that it was granted, and the later word of the
// grant may be lost. A break that names the lower token is late: it was meant for a lease before that.
func TestBreakNeedsTheGrantedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		holder, other, ctx := f.backend(t), f.backend(t), t.Context()
		held := acquireAlone(t, holder, "a")
		advance(100 * time.Millisecond) // it is on all nodes
		f.nodes[0].mini.HSet("{leased}:"+f.nodes[0].server()+":lock:a", "token", (held.Token - 1).String())
		require.ErrorIs(t, other.Break(ctx, "a", held.Token-1), engine.ErrNotHeld)
		_, err := other.Find(ctx, "a", held.Token-1)
		require.ErrorIs(t, err, engine.ErrNotHeld)
		require.NoError(t, holder.Renew(ctx, []Held{held})[0])
		require.NoError(t, other.Break(ctx, "a", held.Token))
	})
}

// Nodes that have seen a newer version record a break, and do not confirm it. Its caller asks again under that version.
func TestBreakUnderAnOlderVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, held := holdingInService(t, "e/1")
		ctx := t.Context()
		advance(100 * time.Millisecond)
		for _, n := range f.nodes[:2] { // after they were asked for the lease
			n.onRelease(func() error {
				n.mini.HSet("{leased}:"+n.server()+":node", "version", "3")
				return nil
			})
		}
		err := b.Break(ctx, "e/1", held.Token)
		require.ErrorIs(t, err, engine.ErrUncertain)
		require.ErrorIs(t, err, engine.ErrVersion)
		for _, n := range f.nodes[:2] {
			n.onRelease(nil)
		}
		s.set(f, 3)
		require.ErrorIs(t, b.Break(ctx, "e/1", held.Token), engine.ErrNotHeld, "all nodes have recorded it")
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
	})
}
