package redlockadapter_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// address leads new connections to a node that can be changed. Open connections stay where
// they are.
type address struct {
	mu   sync.Mutex
	node *virtualNode
}

func (a *address) move(to *virtualNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = to
}

func (a *address) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	a.mu.Lock()
	node := a.node
	a.mu.Unlock()
	return node.dial(ctx, network, addr)
}

// movable makes the address of a node movable.
func (f *virtualFleet) movable(node int) *address {
	a := &address{node: f.nodes[node]}
	f.config.Nodes[node] = &redis.Options{Addr: f.nodes[node].name, Dialer: a.dial}
	return a
}

// An address moves to a new, empty server, while the old one lives on and serves the open
// connections. No lock is held twice, and its tokens grow: a process stops using the old
// server before the new one votes.
func TestTwoLivingServersBehindOneAddress(t *testing.T) {
	t.Parallel()
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, size)
				moving := f.movable(0)
				f.init(t)
				before := f.backend(t)
				busy := newLocker(t, f.config)
				busy.acquire(before)

				old := f.nodes[0]
				moving.move(newVirtualNode(t, 100))
				after := f.backend(t)
				for range 40 { // longer than the quarantine, with the old connections in use all the time
					busy.acquire(before)
					advance(virtualTTL / 20)
				}
				require.Len(t, live(t, after), size)
				asked := old.countAcquires()
				for i := range 40 {
					lock := fencing.Resource(fmt.Sprint("lock ", i))
					first, err := before.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, lock))
					require.NoError(t, err)
					_, err = after.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, lock))
					require.ErrorIs(t, err, engine.ErrHeld, "%s is held", lock)
					require.NoError(t, before.Release(t.Context(), first))
					second, err := after.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(2, lock))
					require.NoError(t, err)
					require.Greater(t, second.Token, first.Token)
				}
				require.Equal(t, asked, old.countAcquires(), "no process asks the old server any more")
			})
		})
	}
}

// With a service, an attempt goes only to the servers that the topology names, even if
// another one votes at the same address.
func TestAttemptsGoToTheLivesOfTheirVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, held := holdingInService(t, "e/1")
		ctx := t.Context()
		advance(time.Second) // it is on all nodes

		s.set(f, 3)
		s.topology.Load().Lives[0] = recovery.LifeName("another", "join")
		asked := f.nodes[0].countAcquires()
		for i := range 10 {
			lock := fencing.Resource(fmt.Sprint("e/", i+2))
			grant, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, lock))
			require.NoError(t, err)
			require.NoError(t, b.Renew(ctx, []Held{grant})[0])
			advance(time.Second)
		}
		require.NoError(t, b.Renew(ctx, []Held{held})[0])
		require.Equal(t, asked, f.nodes[0].countAcquires())
		require.EqualValues(t, 2, b.NodeStatuses(ctx)[0].Report.Live.Version, "it was told nothing about version 3")

		s.set(f, 4)
		s.topology.Load().Lives[0], s.topology.Load().Lives[1] = "", recovery.LifeName("another", "join")
		_, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/100"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Error(t, b.Renew(ctx, []Held{held})[0])
	})
}

// Processes with another longest TTL would recover nodes too early, so the nodes refuse them.
func TestStandaloneProcessesShareTheLongestTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		k.acquire(b)
		shorter := *f
		shorter.config.MaxTTL /= 2
		other := shorter.backend(t)
		_, err := newLocker(t, shorter.config).try(other)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.ErrorContains(t, err, "another MaxTTL")
		f.nodes[0].restart(t, true)
		advance(virtualTTL - 2*time.Second)
		require.Equal(t, []int{1, 2}, live(t, b), "the quarantine is that of the fleet")
		advance(virtualTTL)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
		k.acquire(b)
	})
}

// A service adopts nodes of standalone use with ranges of its log: their ceilings bind them.
func TestStandaloneNodesBelongToAnotherFleetThanAService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		alone := f.backend(t)
		newLocker(t, f.config).acquire(alone)
		fleet := alone.NodeStatuses(t.Context())[0].Report.Live.Fleet
		f.initService(t)
		b, err := redlockadapter.New(t.Context(), f.config)
		require.NoError(t, err)
		defer b.Close(t.Context())
		require.NotEqual(t, fleet, b.NodeStatuses(t.Context())[0].Report.Live.Fleet)
		_, err = newLocker(t, f.config).try(alone)
		require.ErrorContains(t, err, "to a service")
	})
}

// An address leads to a new server, back to the old one, and to the new one again, which was joined long ago. Its
// quarantine starts again: leases were granted on the old one in between.
func TestQuarantineStartsAgainWhenAnAddressLeadsBack(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{3 * time.Second, 2 * virtualTTL} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 3)
				moving, second := f.movable(0), newVirtualNode(t, 100)
				f.init(t)
				b, k := f.backend(t), newLocker(t, f.config)
				moving.move(second)
				advance(virtualTTL * 8 / 10)
				require.Equal(t, []int{1, 2}, live(t, b))
				moving.move(f.nodes[0])
				for end := now().Add(away); now().Before(end); advance(time.Second) {
					k.acquire(b)
				}
				require.Equal(t, []int{0, 1, 2}, live(t, b))

				moving.move(second)
				for range 9 {
					advance(virtualTTL / 10)
					s := b.NodeStatuses(t.Context())[0]
					require.False(t, s.Report.Server == second.server() && s.Report.Live != nil, "it votes too early")
					k.acquire(b)
				}
				advance(virtualTTL)
				require.Equal(t, []int{0, 1, 2}, live(t, b), "it votes after its quarantine")
				k.acquire(b)
			})
		})
	}
}
