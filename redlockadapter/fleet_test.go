package redlockadapter_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// advance waits in virtual time.
func advance(d time.Duration) { <-time.After(d) }

// A process that lists other nodes is refused: a quorum of its nodes need not share a
// node with a quorum of the real fleet.
func TestProcessWithAnotherFleetIsRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5).init(t)
	five, k := f.backend(t), newLocker(t, f.config)
	k.acquireN(five, 20)

	three := f.subset(0, 1, 2)
	b := three.backend(t)
	waitFor(t, func() bool {
		_, err := k.try(b)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		return strings.Contains(err.Error(), "belongs to another fleet: to a service, or to processes with other addresses")
	})
	err := redlockadapter.Init(testContext(t), three.config, fencing.None)
	require.ErrorContains(t, err, "belongs to another fleet", "an operator cannot initialise these nodes by mistake")
	k.acquire(five)
	_, err = k.try(b)
	require.ErrorIs(t, err, engine.ErrUnavailable)
}

// A process with another fleet does not recover lost nodes into it: with two of its
// three nodes it would grant tokens in parallel to the quorum of the fleet of five.
func TestAnotherFleetDoesNotTakeLostNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		k := newLocker(t, f.config)
		five := f.backend(t)
		k.acquireN(five, 20)
		require.NoError(t, five.Close(t.Context()))

		few := &virtualFleet{nodes: f.nodes[:3], config: f.config}
		few.config.Nodes = f.config.Nodes[:3]
		three := few.backend(t)
		for _, n := range few.nodes[:2] {
			n.restart(t, true)
			advance(3 * virtualTTL)
			_, err := k.try(three)
			require.ErrorIs(t, err, engine.ErrUnavailable)
		}
		require.Equal(t, []int{2}, live(t, three))

		five = f.backend(t)
		k.acquire(five)
		advance(time.Minute)
		require.Len(t, live(t, five), 5, "its own fleet recovers them")
		k.acquire(five)
	})
}

// A server with two addresses has one vote, even if one address is unreachable at the
// start.
func TestServerWithTwoAddressesHasOneVote(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).withShortQuarantine().init(t)
	_, port, err := net.SplitHostPort(f.servers[0].Addr)
	require.NoError(t, err)
	var open atomic.Bool
	second := &redis.Options{Addr: "localhost:" + port, Dialer: func(ctx context.Context, network, addr string) (net.Conn,
		error) {
		if !open.Load() {
			return nil, errRefused
		}
		var d net.Dialer
		return d.DialContext(ctx, network, f.servers[0].Addr)
	}}
	twice := &fleet{servers: f.servers[:2], config: f.config}
	twice.config.Namespace = "twice"
	twice.config.Nodes = []*redis.Options{f.config.Nodes[0], second, f.config.Nodes[1]}
	require.NoError(t, redlockadapter.Init(testContext(t), twice.config, fencing.None))
	b, k := twice.backend(t), newLocker(t, f.config)
	k.acquire(b)
	open.Store(true)
	waitFor(t, func() bool {
		status := b.NodeStatuses(testContext(t))[1]
		return status.Err != nil && strings.Contains(status.Err.Error(), "it is the same server as "+f.servers[0].Addr)
	})
	k.acquire(b)
	f.servers[1].Stop()
	_, err = k.try(b)
	require.ErrorIs(t, err, engine.ErrUnavailable, "one server is not a quorum of three")
	_, err = redlockadapter.New(testContext(t), twice.config)
	require.ErrorIs(t, err, redlockadapter.ErrNodeSetup)
}
