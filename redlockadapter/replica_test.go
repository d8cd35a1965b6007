package redlockadapter_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/redlockadapter"
)

// syncAtOnce has a server send its data to a new replica without delay.
var syncAtOnce = testserver.RedisConfig("repl-diskless-sync-delay", "0")

// copyNode starts a server with a copy of the data of a node.
func (f *fleet) copyNode(t *testing.T, node int) *testserver.RedisServer {
	t.Helper()
	older := testserver.Redis(t, syncAtOnce)
	(&fleet{servers: []*testserver.RedisServer{older}}).follow(t, 0, f.servers[node].Addr)
	return older
}

// follow makes a server a replica of another one, waits until it has the data, and
// makes it a master again.
func (f *fleet) follow(t *testing.T, node int, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	c := f.client(t, node)
	require.NoError(t, c.ReplicaOf(testContext(t), host, port).Err())
	waitFor(t, func() bool { return infoField(t, c, "master_link_status") == "up" })
	require.NoError(t, c.ReplicaOf(testContext(t), "NO", "ONE").Err())
}

// A node that was a replica of an older copy of itself has forgotten what it accepted
// since. It is empty, on new connections and on those that stayed open, and recovers
// with a fresh range.
func TestFormerReplicaHasNoState(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"connection stays open": true, "new connection": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3, syncAtOnce).withShortQuarantine()
			f.copyNode(t, 0) // the first replica changes the identity of its master
			f.copyNode(t, 1)
			f.init(t)
			k := newLocker(t, f.config)
			first := f.backend(t)
			k.acquire(first)
			require.NoError(t, first.Close(testContext(t)))
			copies := []*testserver.RedisServer{f.copyNode(t, 0), f.copyNode(t, 1)}
			for i := range copies {
				c := f.client(t, i)
				waitFor(t, func() bool { return infoField(t, c, "connected_slaves") == "0" })
			}

			b := f.backend(t)
			k.acquireN(b, 50)
			before := b.NodeStatuses(testContext(t))
			if !stays {
				require.NoError(t, b.Close(testContext(t)))
			}
			for i, s := range copies {
				f.follow(t, i, s.Addr)
			}
			if !stays {
				b = f.backend(t)
			}
			waitFor(t, func() bool {
				after := b.NodeStatuses(testContext(t))
				return recovered(before[0], after[0]) && recovered(before[1], after[1])
			}, "the servers have new identities and vote again")
			// Node 2 alone would keep the tokens growing. It stops only now: the others
			// recover from its report.
			f.servers[2].Stop()
			k.acquireN(b, 10)
		})
	}
}

// recovered reports whether a node votes in another life than before.
func recovered(before, after redlockadapter.NodeStatus) bool {
	return after.Err == nil && after.Report.Live != nil && after.Report.Server != before.Report.Server
}
