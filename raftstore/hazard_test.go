package raftstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/transport"
)

// disk is a log whose writes can hang or fail.
type disk struct {
	raft.LogStore
	stuck atomic.Pointer[chan struct{}]
	fault atomic.Pointer[error]
}

func (d *disk) StoreLogs(logs []*raft.Log) error {
	if c := d.stuck.Load(); c != nil {
		<-*c
	}
	if err := d.fault.Load(); err != nil {
		return *err
	}
	return d.LogStore.StoreLogs(logs)
}

// disks puts a disk under every node, and notes which nodes ended.
func disks(under map[string]*disk, ended chan<- error) func(*Config) {
	return func(c *Config) {
		d := &disk{LogStore: c.Storage.Log}
		under[c.ID] = d
		c.Storage.Log = d
		c.Fatal = func(err error) { ended <- err }
	}
}

func openSession(t testing.TB, b *Backend, ttl time.Duration) engine.Session {
	t.Helper()
	ctx := testContext(t)
	var s engine.Session
	require.NoError(t, retry(ctx, func() (err error) {
		s, err = b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl, Clock: engine.MonotonicClock()})
		return err
	}))
	return s
}

func lockRequest(nonce engine.Nonce, name fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: []fencing.Resource{name}, Holder: "test"}
}

func TestStalledDiskEndsTheLeader(t *testing.T) {
	stall := func(t *testing.T, deadline time.Duration) (leader *Node, c *cluster, ended chan error) {
		under := map[string]*disk{}
		ended = make(chan error, 3)
		c = startMemory(t, 3, disks(under, ended), func(c *Config) { c.StoreDeadline = deadline })
		leader = c.leader()
		stuck := make(chan struct{})
		t.Cleanup(func() { close(stuck) })
		under[leader.ID()].stuck.Store(&stuck)
		go func() { _ = leader.barrier(context.Background()) }() // something to write
		return leader, c, ended
	}
	t.Run("with a deadline another node leads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			leader, c, ended := stall(t, 5*time.Second)
			require.ErrorIs(t, firstOf(t, ended, "the node whose disk is stalled ends"), logstore.ErrStalled)
			require.ErrorIs(t, leader.Failure(), logstore.ErrStalled)
			eventually(t, "another leader", func() bool { next := c.leader(); return next != leader })
			s := openSession(t, c.backend(), time.Minute)
			_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
			require.NoError(t, err)
		})
	})
	t.Run("without it the node keeps leading", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			leader, c, _ := stall(t, time.Hour)
			pass(10 * time.Minute)
			for _, n := range c.nodes {
				id, _ := n.Leader()
				require.Equal(t, leader.ID(), id, "if the Raft library now steps down by itself, the deadline can be removed")
			}
		})
	})
}

func TestFailedWriteEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		ended := make(chan error, 3)
		c := startMemory(t, 3, disks(under, ended))
		leader := c.leader()
		s := retrying{openSession(t, c.backend(), time.Minute)}
		first, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)

		broken := errors.New("input/output error")
		under[leader.ID()].fault.Store(&broken)
		second, err := s.Acquire(testContext(t), lockRequest(2, "b"))
		require.NoError(t, err, "the next leader answers")
		require.True(t, second.Token.Newer(first.Token))
		require.ErrorIs(t, firstOf(t, ended, "the node whose write failed ends"), broken)
		require.ErrorIs(t, leader.Failure(), broken)
		require.NotEqual(t, leader, c.leader())
		_, err = leader.Inspect(testContext(t), "a", Linearizable)
		require.Error(t, err)
	})
}

func TestCallsReturnWhenTheRaftLibraryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		c := startMemory(t, 1, disks(under, make(chan error, 3)), func(c *Config) { c.StoreDeadline = time.Hour })
		leader := c.leader()
		s := openSession(t, c.backend(), time.Minute)
		stuck := make(chan struct{})
		under[leader.ID()].stuck.Store(&stuck)

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, engine.ErrUncertain, "the entry may still be written")

		hanging := make(chan error, 1)
		go func() { hanging <- leader.barrier(context.Background()) }()
		synctest.Wait()
		leader.stopOnce.Do(func() { close(leader.stopped) }) // as Close does first
		answer := firstOf(t, hanging, "the caller of a node that stops has an answer")
		close(stuck)
		synctest.Wait() // the entry is applied: on a shutdown now the library would drop its future
		require.ErrorIs(t, answer, engine.ErrUnavailable, "a barrier changes nothing")
	})
}

// noted counts the calls of the Raft library to its transport.
type noted struct {
	transport.Transport
	handlers, pipelines atomic.Int32
}

func (n *noted) SetHeartbeatHandler(handler func(raft.RPC)) {
	n.handlers.Add(1)
	n.Transport.SetHeartbeatHandler(handler)
}

func (n *noted) AppendEntriesPipeline(id raft.ServerID, a raft.ServerAddress) (raft.AppendPipeline, error) {
	n.pipelines.Add(1)
	return n.Transport.AppendEntriesPipeline(id, a)
}

func TestNodesUseNoShortcutsOfTheRaftLibrary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var transports []*noted
		c := startMemory(t, 3, func(c *Config) {
			n := &noted{Transport: c.Transport}
			c.Transport = n
			transports = append(transports, n)
		})
		s := openSession(t, c.backend(), time.Minute)
		for nonce := range engine.Nonce(20) { // enough for the library to start pipelining
			_, err := s.Acquire(testContext(t), lockRequest(nonce+1, "a"))
			require.True(t, err == nil || errors.Is(err, engine.ErrHeld))
		}
		for _, n := range transports {
			require.Zero(t, n.handlers.Load(), "heartbeats take the ordinary path")
			require.Zero(t, n.pipelines.Load(), "one request is in flight to each follower")
		}
		stable := c.configs[0].Storage.Stable
		_, err := stable.Get([]byte("LastVoteCand"))
		require.Error(t, err, "votes are not written in two parts")
		whole, err := stable.Get([]byte("LastVote"))
		require.NoError(t, err)
		require.NotEmpty(t, whole)
	})
}

func TestIsolatedLeaderCannotAnswerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		old := c.leader()
		s := retrying{openSession(t, c.backend(), time.Minute)}
		c.isolate(old)
		require.True(t, old.Leads(), "it has not noticed yet")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := old.Inspect(ctx, "a", Linearizable)
		require.Error(t, err)
		status, err := old.Inspect(ctx, "a", Stale)
		require.NoError(t, err, "the caller asked for a stale read")
		require.Empty(t, status.Holders)

		grant, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		status, err = c.backend().Inspect(testContext(t), "a")
		require.NoError(t, err)
		require.Equal(t, grant.Token, status.Holders[0].Token)
	})
}

func TestPausedLeaderDoesNotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocks := map[string]*leasetest.Clock{}
		c := startMemory(t, 3, func(c *Config) {
			clocks[c.ID] = leasetest.NewClock()
			c.Clock = clocks[c.ID]
		})
		old := c.leader()
		s := openSession(t, c.backend(), time.Minute)
		_, err := s.Renew(testContext(t))
		require.NoError(t, err)
		id := s.(*Session).config.ID

		c.isolate(old)
		clocks[old.ID()].Suspend(time.Minute) // its timers have not fired, so it still leads
		require.True(t, old.Leads())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.Error(t, old.renew(ctx, id, s.(*Session).number, 0),
			"a renewal without a proof could last longer than the session at the next leader")

		c.heal()
		_, err = retrying{s}.Renew(testContext(t))
		require.NoError(t, err)
	})
}

// A leader with a long heartbeat timeout must not renew for as long as that: followers
// with a shorter timeout have elected another leader by then, whose deadlines run.
func TestRenewalsDoNotDependOnNodeTimings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, ttl = 20 * time.Second, 10 * time.Second
		c := startMemory(t, 3, func(c *Config) {
			if c.ID == "n0" {
				c.HeartbeatTimeout, c.StoreDeadline = slow, time.Minute
			}
		})
		old := c.leader()
		require.Equal(t, c.nodes[0], old)
		s := openSession(t, c.backend(), ttl)
		c.isolate(old)
		next := &cluster{t: t, nodes: c.nodes[1:]}
		next.leader()
		pass(ttl / 2)
		require.True(t, old.Leads(), "its heartbeat timeout is %v", slow)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.Error(t, old.renew(ctx, s.(*Session).config.ID, s.(*Session).number, 0),
			"the session would expire at the next leader before this renewal ends")
		c.heal()
	})
}

func TestRenewalsShareTheProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		leader := c.leader()
		s := openSession(t, c.backend(), time.Minute)
		before := leader.Status().Chain
		for range 100 {
			_, err := s.Renew(testContext(t))
			require.NoError(t, err)
		}
		require.Equal(t, before, leader.Status().Chain, "renewals write no entries")
	})
}

func TestExpiryOfAFormerLeaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		old := c.leader()
		generation := old.leading.Load().generation
		s := openSession(t, c.backend(), 10*time.Second)
		_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		c.isolate(old)
		eventually(t, "another leader", func() bool { next := c.leader(); return next != old })

		// The Expire of the old leader reaches the log through the new one.
		result, _, err := c.leader().propose(testContext(t), &machine.Expire{Session: s.(*Session).config.ID,
			Incarnation: s.(*Session).number, Generation: generation})
		require.NoError(t, err)
		require.Equal(t, machine.Outdated, result.Code)
		eventually(t, "a renewal", func() bool { // the former leader may get the first one
			_, err = s.Renew(testContext(t))
			return err == nil
		})
	})
}

func TestFailoverGivesFullTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		c := startMemory(t, 3)
		s := openSession(t, c.backend(), ttl)
		_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		pass(ttl - time.Second)
		old := c.leader()
		c.isolate(old)
		eventually(t, "another leader", func() bool { next := c.leader(); return next != old })
		pass(ttl + lessor.ProofLife - 100*time.Millisecond)
		status, err := c.backend().Inspect(testContext(t), "a")
		require.NoError(t, err)
		require.Len(t, status.Holders, 1,
			"a failover can only extend a lease, even one that the old leader renewed just before")
		pass(2 * time.Second)
		status, err = c.backend().Inspect(testContext(t), "a")
		require.NoError(t, err)
		require.Empty(t, status.Holders, "the lease expires at last")
		_, err = s.Renew(testContext(t))
		require.ErrorIs(t, err, engine.ErrLost)
		c.heal()
		c.agree()
	})
}

// The longer TTL of a renewal is in the log before the holder relies on it: the next leader gives
// the session that TTL. A late, shorter one does not lower it.
func TestFailoverKeepsAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, longer = 10 * time.Second, time.Minute
		c := startMemory(t, 3)
		s := openSession(t, c.backend(), ttl)
		_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		require.NoError(t, s.Update(testContext(t), engine.Held{Nonce: 1, TTL: longer}))
		require.NoError(t, s.Update(testContext(t), engine.Held{Nonce: 1, TTL: ttl}))
		old := c.leader()
		c.isolate(old)
		eventually(t, "another leader", func() bool { next := c.leader(); return next != old })
		pass(longer - ttl)
		status, err := c.backend().Inspect(testContext(t), "a")
		require.NoError(t, err)
		require.Len(t, status.Holders, 1)
		require.NoError(t, s.Update(testContext(t), engine.Held{Nonce: 1, TTL: ttl,
			Metadata: map[string]string{"done": "90%"}}))
		status, err = c.backend().Inspect(testContext(t), "a")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"done": "90%"}, status.Holders[0].Metadata)
		require.ErrorIs(t, s.Update(testContext(t), engine.Held{Nonce: 2, TTL: ttl}), engine.ErrNotHeld)
		require.ErrorIs(t, s.Update(testContext(t), engine.Held{Nonce: 1, TTL: engine.MaxTTL + 1}), engine.ErrInvalid)
		c.heal()
		c.agree()
	})
}

func TestUncertainErrorIsNotARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startMemory(t, 1).leader()
		for err, certain := range map[error]bool{
			raft.ErrNotLeader:                    true,
			raft.ErrEnqueueTimeout:               true,
			raft.ErrLeadershipTransferInProgress: true,
			raft.ErrLeadershipLost:               false,
			raft.ErrRaftShutdown:                 false,
			raft.ErrAbortedByRestore:             false,
			errors.New("input/output error"):     false,
		} {
			got := n.proposalError(err)
			require.Equal(t, certain, errors.Is(got, engine.ErrUnavailable), "%v", err)
			require.Equal(t, !certain, errors.Is(got, engine.ErrUncertain), "%v", err)
		}
	})
}

func TestFormerLeadershipIsNotProposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startMemory(t, 1).leader()
		before := n.Status().Chain
		former := &leadership{number: n.leading.Load().number + 1}
		_, err := n.committer.commit(testContext(t), former, &machine.OpenSession{Session: engine.NewSessionID(),
			TTL: time.Minute})
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Equal(t, before, n.Status().Chain)
	})
}
