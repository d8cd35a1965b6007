package redlockadapter_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/redlockadapter"
)

// copyOf makes a server with a copy of what a node has now.
func (f *fleet) copyOf(t *testing.T, node int) *testserver.RedisServer {
	t.Helper()
	older := testserver.Redis(t)
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
	require.NoError(t, c.ReplicaOf(patient(t), host, port).Err())
	waitFor(t, func() bool { return infoField(t, c, "master_link_status") == "up" })
	require.NoError(t, c.ReplicaOf(patient(t), "NO", "ONE").Err())
}

// A node that was a replica of an older copy of itself has forgotten what it
// accepted since. It is empty, for new connections and for those that were open
// all the time, and comes back with a fresh range.
func TestANodeThatWasAReplicaHasLostItsState(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"connected all the time": true, "connected anew": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3, testserver.RedisConfig("repl-diskless-sync-delay", "0")).shortLives()
			f.copyOf(t, 0) // the first replica changes the identity of its master
			f.copyOf(t, 1)
			f.init(t)
			k := newTaker(t)
			first := f.backend(t)
			k.take(first)
			require.NoError(t, first.Close(patient(t)))
			older := []*testserver.RedisServer{f.copyOf(t, 0), f.copyOf(t, 1)}
			for i := range older {
				c := f.client(t, i)
				waitFor(t, func() bool { return infoField(t, c, "connected_slaves") == "0" })
			}

			b := f.backend(t)
			k.takeSome(b, 50)
			before := b.NodeStatuses(patient(t))
			if !stays {
				require.NoError(t, b.Close(patient(t)))
			}
			for i, s := range older {
				f.follow(t, i, s.Addr)
			}
			if !stays {
				b = f.backend(t)
			}
			waitFor(t, func() bool {
				after := b.NodeStatuses(patient(t))
				return changed(before[0], after[0]) && changed(before[1], after[1])
			}, "the servers have new identities")
			f.servers[2].Stop() // else it alone keeps tokens from going back
			k.takeSome(b, 10)
		})
	}
}

func changed(before, after redlockadapter.NodeStatus) bool {
	return after.Err == nil && after.Identity != "" && after.Identity != before.Identity
}
