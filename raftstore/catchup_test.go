package raftstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// beginning is the transport of a node that receives only the beginning of the log, the first
// entry or the first snapshot, and then nothing. Its response is lost.
type beginning struct {
	transport.Transport
	delivered chan raft.RPC
	close     func()
}

func onlyTheBeginning(from transport.Transport) *beginning {
	over := make(chan struct{})
	b := &beginning{from, make(chan raft.RPC), sync.OnceFunc(func() { close(over) })}
	go func() {
		for cut := false; ; {
			select {
			case rpc := <-from.Consumer():
				if cut {
					continue
				}
				rpc, cut = first(rpc)
				select {
				case b.delivered <- rpc:
				case <-over:
					return
				}
			case <-over:
				return
			}
		}
	}()
	return b
}

func (b *beginning) Consumer() <-chan raft.RPC { return b.delivered }

func (b *beginning) Close() error {
	b.close()
	return b.Transport.Close()
}

// first reduces a request to the first entry of the log. It returns false if the request
// has neither that entry nor a snapshot.
func first(rpc raft.RPC) (raft.RPC, bool) {
	switch request := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		if request.PrevLogEntry > 0 || len(request.Entries) == 0 {
			return rpc, false
		}
		less := *request
		less.Entries, less.LeaderCommitIndex = request.Entries[:1], 1
		rpc.Command = &less
	case *raft.InstallSnapshotRequest:
	default:
		return rpc, false
	}
	rpc.RespChan = make(chan raft.RPCResponse, 1)
	return rpc, true
}

// rejoin removes a node of a memory cluster, empties it and lets it join again. The node
// receives the log only up to the time when it was the only member.
func (c *cluster) rejoin(t *testing.T, i int) *Node {
	t.Helper()
	old := c.nodes[i]
	require.NoError(t, stop(testContext(t), old))
	rest := &cluster{t: t}
	for _, n := range c.nodes {
		if n != old {
			rest.nodes = append(rest.nodes, n)
		}
	}
	leader := rest.leader()
	require.NoError(t, leader.Remove(testContext(t), old.ID()))
	c.configs[i].Storage = MemoryStorage()
	c.heal()
	config := c.configs[i]
	config.Transport = onlyTheBeginning(config.Transport)
	c.nodes[i] = openNode(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, c.nodes[i].Join(ctx, leader), ErrBehind)
	return c.nodes[i]
}

// staysQuiet checks that a node that is catching up does not start an election, although
// it is the only voter in the part of the log that it has.
func staysQuiet(t *testing.T, n *Node) {
	t.Helper()
	require.True(t, n.CatchingUp())
	require.Equal(t, []Member{{ID: n.ID(), Address: n.Address(), Voter: true}}, n.Members(),
		"it is the only voter in its log")
	term := n.raft.CurrentTerm()
	pass(time.Minute)
	require.Equal(t, term, n.raft.CurrentTerm(), "it starts no election")
	require.NoError(t, n.catchUp.timeouts(DefaultHeartbeatTimeout))
	pass(5 * DefaultHeartbeatTimeout)
	require.Greater(t, n.raft.CurrentTerm(), term, "with the usual timeout it starts one")
	require.NotEqual(t, raft.Leader, n.raft.State(), "it has elected itself")
	require.False(t, n.Leads())
	require.NoError(t, n.catchUp.timeouts(noElectionTimeout)) // otherwise it deposes any leader
}

// The first node of a cluster replays entries from when it was the only voter.
func TestRejoinedFounderDoesNotElectItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		staysQuiet(t, c.rejoin(t, 0))
		c.leader()
	})
}

func TestRestartedRejoinedFounderCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		require.NoError(t, c.rejoin(t, 0).Close())
		back := c.restart(0)
		c.isolate(back)
		staysQuiet(t, back)
		require.ErrorIs(t, back.Bootstrap(), ErrBootstrapped)

		c.heal()
		eventually(t, "it follows the cluster", func() bool { return !back.CatchingUp() })
		require.Len(t, back.Members(), 3)
		require.NoError(t, back.Join(testContext(t), c.leader()))
		_, voter := c.leader().voter(back.ID())
		require.True(t, voter)
		c.agree()
		require.NoError(t, back.Close())
		require.False(t, c.restart(0).CatchingUp(), "it is still caught up after a restart")
	})
}

// The snapshot of a recovery also has only one voter.
func TestRejoinedSurvivorDoesNotElectItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		for _, n := range c.nodes {
			require.NoError(t, n.Close())
		}
		_, err := Recover(c.configs[2])
		require.NoError(t, err)
		c.heal()
		survivor := c.restart(2)
		eventually(t, "it leads", survivor.Leads)
		for i := range 2 {
			c.configs[i].Storage = MemoryStorage()
			require.NoError(t, c.restart(i).Join(testContext(t), survivor))
		}
		c.agree()
		staysQuiet(t, c.rejoin(t, 2))
		c.leader()
	})
}

// A node that is elected before it has caught up does not serve.
func TestCatchingUpNodeDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startMemory(t, 1).nodes[0]
		require.NoError(t, n.catchUp.note(1<<40))
		n.takeOver()
		require.Equal(t, raft.Leader, n.raft.State())
		require.False(t, n.Leads())
	})
}

// The log of a removed node may differ from the log of the cluster.
func TestRemovedNodeJoinsOnlyWithEmptyFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		leader, removed := c.nodes[0], c.nodes[2]
		require.False(t, removed.Removed())
		require.NoError(t, leader.Remove(ctx, removed.ID()))
		eventually(t, "the node knows that it was removed", removed.Removed)
		require.False(t, leader.Removed())
		err := removed.Join(ctx, leader)
		require.ErrorIs(t, err, ErrNotMember)
		require.ErrorContains(t, err, "empty its folder and join again")
		require.NoError(t, removed.Close())
		c.configs[2].Storage = MemoryStorage()
		require.NoError(t, c.restart(2).Join(ctx, leader))
	})
}

// slowAppends takes a millisecond for each AppendEntries.
type slowAppends struct{ transport.Transport }

func (l slowAppends) AppendEntries(id raft.ServerID, to raft.ServerAddress, request *raft.AppendEntriesRequest,
	answer *raft.AppendEntriesResponse) error {
	pass(time.Millisecond)
	return l.Transport.AppendEntries(id, to, request, answer)
}

// A removed node learns it also if the leader is sending it other entries at that moment.
func TestRemovedNodeKnowsItUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3, func(c *Config) { c.Transport = slowAppends{c.Transport} })
		ctx := testContext(t)
		working, stop := context.WithCancel(ctx)
		s := openSession(t, c.backend(), time.Hour)
		var worker sync.WaitGroup
		defer worker.Wait()
		defer stop()
		worker.Go(func() {
			for nonce := engine.Nonce(1); working.Err() == nil; nonce++ {
				_, _ = s.Acquire(working, lockRequest(nonce, fencing.Resource(fmt.Sprint(nonce))))
			}
		})
		pass(5500 * time.Microsecond) // a request is in flight
		removed, _ := c.nodes[0].voter(c.nodes[2].ID())
		require.NoError(t, c.nodes[0].Remove(ctx, removed.ID))
		eventually(t, "the node knows that it was removed", c.nodes[2].Removed)

		last, _ := c.nodes[0].progress.Of(removed.ID)
		eventually(t, "another entry", func() bool { return c.nodes[0].raft.LastIndex() > last })
		stop()
		worker.Wait()
		term := c.nodes[0].raft.CurrentTerm()
		require.NoError(t, c.nodes[0].Transfer(ctx, ""))
		eventually(t, "another term", func() bool { return c.nodes[0].raft.CurrentTerm() > term })
		require.NoError(t, c.nodes[0].tell(removed, last+1))
		require.Equal(t, term, c.nodes[2].raft.CurrentTerm(), "a node sends no entries in a term in which another one leads")
	})
}

// The Raft library writes the term before the first entry. A node that was stopped
// between the two writes has no state.
func TestInterruptedBootstrapCountsAsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 2)
		require.NoError(t, c.nodes[1].Close())
		c.configs[1].Storage = MemoryStorage()
		require.NoError(t, c.configs[1].Storage.Stable.SetUint64([]byte("CurrentTerm"), 1))
		n := c.restart(1)
		require.False(t, n.admission.hasState())
		err := n.Bootstrap()
		require.ErrorIs(t, err, ErrBootstrapped)
		require.ErrorContains(t, err, "empty the data folder")
	})
}
