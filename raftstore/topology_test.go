package raftstore

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

var testFleet = engine.Fleet{Namespace: "leased", Addresses: []string{"r1:6379", "r2:6379", "r3:6379"},
	MaxTTL: time.Minute}

// makeReady reconciles the log with a fleet.
func makeReady(t *testing.T, n *Node) {
	t.Helper()
	ctx := testContext(t)
	_, err := n.SetFleet(ctx, testFleet, 0, false, false)
	require.NoError(t, err)
	reconcile(t, n)
}

// reconcile reconciles the log with its fleet, whose nodes have nothing to report.
func reconcile(t *testing.T, n *Node) {
	t.Helper()
	ctx := testContext(t)
	require.NoError(t, n.Change(ctx, &machine.Reconcile{}))
	require.NoError(t, n.Change(ctx, &machine.FinishReconcile{Version: n.Efficiency().ReconcileVersion}))
}

// moveToEfficiency migrates a prefix without holders.
func moveToEfficiency(t *testing.T, n *Node, prefix string) {
	t.Helper()
	version, err := n.SetPolicy(testContext(t), engine.Policy{Prefix: prefix, Mode: engine.Efficiency}, 0, true)
	require.NoError(t, err)
	require.NoError(t, n.Change(testContext(t), &machine.FinishMigration{Prefix: prefix, Version: version}))
}

func TestPoliciesAreVersioned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		n, ctx := c.leader(), testContext(t)
		version, err := n.SetPolicy(ctx, engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, 0, false)
		require.NoError(t, err)
		require.Equal(t, uint64(1), version)
		_, err = n.SetPolicy(ctx, engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, 7, false)
		require.ErrorIs(t, err, ErrVersion)
		_, err = n.SetPolicy(ctx, engine.Policy{Prefix: "fast/", Mode: engine.Correctness}, 0, false)
		require.ErrorIs(t, err, ErrMigrating)
		require.ErrorContains(t, err, "abort it first")
		require.ErrorIs(t, n.Change(ctx, &machine.FinishMigration{Prefix: "fast/", Version: 2}), ErrVersion)
		require.NoError(t, n.Change(ctx, &machine.FinishMigration{Prefix: "fast/", Version: 1}))
		require.NoError(t, n.Change(ctx, &machine.FinishMigration{Prefix: "fast/", Version: 1}), "it is already finished")
		policies, version, err := n.Policies(ctx, Linearizable)
		require.NoError(t, err)
		require.Equal(t, uint64(2), version)
		require.Equal(t, engine.Efficiency, policies.For("fast/x").Mode)

		s := openSession(t, c.backend(), time.Minute)
		_, err = s.Acquire(ctx, lockRequest(1, "fast/x"))
		require.ErrorIs(t, err, engine.ErrModeMismatch, "a lock in efficiency mode is not granted here")
		request := lockRequest(2, "fast/x")
		request.Mode = engine.Efficiency
		_, err = s.Acquire(ctx, request)
		require.ErrorIs(t, err, engine.ErrUnsupported)
		request = lockRequest(3, "used")
		request.Mode = engine.Efficiency
		_, err = s.Acquire(ctx, request)
		require.ErrorIs(t, err, engine.ErrModeMismatch)

		_, err = n.DeletePolicy(ctx, "fast/", 1, false)
		require.ErrorIs(t, err, ErrVersion)
		_, err = n.DeletePolicy(ctx, "none/", 0, false)
		require.ErrorIs(t, err, engine.ErrInvalid)
		_, err = n.AbortMigration(ctx, "fast/")
		require.ErrorIs(t, err, engine.ErrInvalid)
		c.agree()
	})
}

// When a migration starts, waiters for its locks get an error, and holders get a loss when their
// leases are broken. Waiters may repeat the same attempt.
func TestMigrationNotifiesWaitersAndHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		n, ctx := c.leader(), testContext(t)
		lost := make(chan error, 3) // each node reports it
		holder, err := c.backend().Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour,
			Clock: engine.SystemClock(),
			Lost:  func(_ engine.Nonce, err error) { lost <- err }})
		require.NoError(t, err)
		_, err = holder.Acquire(ctx, lockRequest(1, "a/1"))
		require.NoError(t, err)
		waiter := openSession(t, c.backend(), time.Hour)
		request := lockRequest(1, "a/1")
		request.Wait = true
		told := make(chan error, 1)
		go func() { _, err := waiter.Acquire(ctx, request); told <- err }()
		pass(time.Second) // the attempt is in the queue

		policy := engine.Policy{Prefix: "a/", Mode: engine.Efficiency}
		version, err := n.SetPolicy(ctx, policy, 0, false)
		require.NoError(t, err)
		want := &engine.MigratingError{Resource: "a/1", From: engine.Correctness, To: engine.Efficiency}
		require.Equal(t, want, <-told)
		_, err = waiter.Acquire(ctx, request)
		require.Equal(t, want, err)
		expecting := request
		expecting.Mode = engine.Efficiency
		_, err = waiter.Acquire(ctx, expecting)
		require.Equal(t, want, err)
		require.ErrorIs(t, n.Change(ctx, &machine.FinishMigration{Prefix: "a/", Version: version}), engine.ErrHeld)
		require.Equal(t, 1, n.Efficiency().Migrations[0].Holders)

		_, err = n.SetPolicy(ctx, policy, 0, true)
		require.NoError(t, err)
		err = firstOf(t, lost, "the loss is reported")
		require.ErrorIs(t, err, engine.ErrTaken)
		require.ErrorContains(t, err, "migrated the lock")
		_, err = n.AbortMigration(ctx, "a/")
		require.NoError(t, err)
		_, err = waiter.Acquire(ctx, request)
		require.NoError(t, err)
	})
}

// A migration may start between the answer "queued" and the wait.
func TestWaiterChecksForAMigrationBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		n, ctx := c.leader(), testContext(t)
		s := openSession(t, c.backend(), time.Hour).(*Session)
		missed := func() error {
			_, err := awaitQueued(t, n, n.leading.Load(), s, lockRequest(1, "a"))
			return err
		}
		version, err := n.SetPolicy(ctx, engine.Policy{Prefix: "a", Mode: engine.Efficiency}, 0, false)
		require.NoError(t, err)
		var migrating *engine.MigratingError
		require.ErrorAs(t, missed(), &migrating)
		require.NoError(t, n.Change(ctx, &machine.FinishMigration{Prefix: "a", Version: version}))
		var mode *engine.ModeError
		require.ErrorAs(t, missed(), &mode)
	})
}

// Every member has the topology that it has applied, even without a leader.
func TestTopologyOnFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		leader := c.leader()
		waiting := make(chan engine.Topology, len(c.nodes))
		for _, n := range c.nodes {
			require.Equal(t, engine.Topology{}, n.Topology())
			go func() {
				for after := uint64(0); ; {
					next, err := n.NextTopology(ctx, after)
					if err != nil || next.Ready && next.Policies.For("fast/x").Mode == engine.Efficiency {
						waiting <- next
						return
					}
					after = next.Version
				}
			}()
		}
		makeReady(t, leader)
		moveToEfficiency(t, leader, "fast/")
		require.NoError(t, leader.SetMemberAPI(ctx, "n1", "n1:8400"))
		for range c.nodes {
			require.Equal(t, leader.Topology(), <-waiting)
		}
		c.agree()
		for _, n := range c.nodes {
			c.isolate(n)
		}
		pass(time.Minute)
		request := lockRequest(1, "fast/x")
		for _, n := range c.nodes {
			require.False(t, n.Leads())
			require.Equal(t, testFleet, n.Topology().Fleet)
			mode, err := n.Topology().Route(&request)
			require.NoError(t, err)
			require.Equal(t, engine.Efficiency, mode)
			require.True(t, n.Efficiency().Ready)
			require.Equal(t, "n1:8400", n.MemberAPI("n1"))
			soon, cancel := context.WithTimeout(ctx, time.Second)
			_, err = n.NextTopology(soon, n.Topology().Version)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
	})
}

// A member that is far behind gets a snapshot instead of the log. A member that restarts has its
// last snapshot before it knows a leader.
func TestTopologyFollowsASnapshot(t *testing.T) {
	n := newBareNode()
	next := make(chan engine.Topology, 1)
	go func() { topology, _ := n.NextTopology(testContext(t), 1); next <- topology }()
	m := machine.New()
	m.Apply(&machine.SetFleet{Fleet: testFleet})
	m.Apply(&machine.SetPolicy{Policy: engine.Policy{Prefix: "a", Mode: engine.Efficiency}})
	require.NoError(t, n.fsm.Restore(io.NopCloser(bytes.NewReader(replica.EncodeState(replica.Chain{}, m)))))
	require.Equal(t, m.Topology(), firstOf(t, next, "a topology"))
	require.Equal(t, uint64(2), n.Topology().Version)
}

func TestNextTopologyEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		ended := make(chan error, 1)
		go func() { _, err := c.nodes[0].NextTopology(testContext(t), 0); ended <- err }()
		synctest.Wait()
		require.NoError(t, c.nodes[0].Close())
		require.ErrorIs(t, firstOf(t, ended, "the wait ends"), ErrStopped)
	})
}

// The log names lives only if it knows all tokens.
func TestFleetCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		n, ctx := c.leader(), testContext(t)
		_, err := n.SetFleet(ctx, testFleet, 3, false, false)
		require.ErrorIs(t, err, ErrVersion)
		_, err = n.SetFleet(ctx, testFleet, 0, false, false)
		require.NoError(t, err)
		err = n.Change(ctx, &machine.NameLife{Member: "r1:6379", Life: "life.nonce"})
		require.ErrorIs(t, err, ErrNotReady)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NoError(t, n.Change(ctx, &machine.Reconcile{Version: 6, Ceiling: 1 << 40}))
		err = n.Change(ctx, &machine.NameLife{Member: "other:6379", Life: "life.nonce"})
		require.ErrorIs(t, err, ErrVersion)
		require.NoError(t, n.Change(ctx, &machine.NameLife{Member: "r1:6379", Life: "life.nonce"}))
		require.Contains(t, n.Efficiency().Lives, machine.Life{Name: "life.nonce", Pending: true, Floor: 1<<40 + 2<<32,
			Version: 8})
		err = n.Change(ctx, &machine.NameLife{Member: "r1:6379", Life: "life.another", Version: 7})
		require.ErrorIs(t, err, ErrVersion, "the log has changed")
		require.Contains(t, n.Topology().Lives, "life.nonce")
		require.NoError(t, n.Change(ctx, &machine.RaiseCeiling{To: 1 << 41}))
		require.Error(t, n.Change(ctx, &machine.RaiseCeiling{To: fencing.MaxToken + 1}))
		require.Equal(t, fencing.Token(1<<41), n.Efficiency().Ceiling)
		require.ErrorIs(t, n.Change(ctx, &machine.FinishReconcile{Version: 6}), ErrVersion)
		require.NoError(t, n.Change(ctx, &machine.FinishReconcile{Version: 7}))
		require.ErrorIs(t, n.Change(ctx, &machine.Reconcile{Version: 8}), ErrVersion)

		other := engine.Fleet{Namespace: "leased", Addresses: []string{"r9:6379"}, MaxTTL: time.Minute}
		version, err := n.SetFleet(ctx, other, 0, true, false)
		require.NoError(t, err)
		require.ErrorIs(t, n.Change(ctx, &machine.FinishFleet{Version: version - 1}), ErrVersion)
		require.NoError(t, n.Change(ctx, &machine.FinishFleet{Version: version}))
		require.Equal(t, other, n.Topology().Fleet)
		err = n.Change(ctx, &machine.NameLife{Member: "r9:6379", Life: "life.nonce"})
		require.ErrorIs(t, err, ErrNotReady, "the log reconciles with the new nodes first")
		require.NoError(t, n.Change(ctx, &machine.Reconcile{}))
		require.NoError(t, n.Change(ctx, &machine.RaiseCeiling{To: fencing.MaxToken}))
		err = n.Change(ctx, &machine.NameLife{Member: "r9:6379", Life: "life.nonce"})
		requireNoTokens(t, err)
	})
}

// A snapshot is saved, the topology changes, and the snapshot is restored. Nothing that was
// assigned since is repeated, and no lock in efficiency mode is granted until the log is
// reconciled with the Redis nodes.
func TestRestoreKeepsTokensGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		n, ctx := c.leader(), testContext(t)
		makeReady(t, n)
		moveToEfficiency(t, n, "fast/")
		var saved bytes.Buffer
		_, err := n.SaveSnapshot(ctx, &saved)
		require.NoError(t, err)

		version, err := n.SetPolicy(ctx, engine.Policy{Prefix: "fast/", Mode: engine.Correctness}, 0, true)
		require.NoError(t, err)
		require.NoError(t, n.Change(ctx, &machine.FinishMigration{Prefix: "fast/", Version: version}))
		later, err := openSession(t, c.backend(), time.Hour).Acquire(ctx, lockRequest(1, "fast/x"))
		require.NoError(t, err)
		require.NoError(t, n.Change(ctx, &machine.NameLife{Member: "r1:6379", Life: "life.nonce"}))
		require.NoError(t, n.Change(ctx, &machine.RaiseCeiling{To: n.Efficiency().Ceiling + 1<<34}))
		assigned := n.Efficiency()
		before := n.Topology().Version
		behind := make(chan engine.Topology, 1)
		go func() { next, _ := c.follower().NextTopology(ctx, before); behind <- next }()
		synctest.Wait()

		floor, err := n.RestoreSnapshot(ctx, &saved)
		require.NoError(t, err)
		require.GreaterOrEqual(t, floor, max(later.Token, assigned.Ceiling)+fencing.FloorStep)
		next := <-behind
		require.GreaterOrEqual(t, next.Version, before+1<<20, "no version that a client may know is used again")
		require.False(t, next.Ready)
		n = c.leader()
		e := n.Efficiency()
		require.True(t, e.Restored && !e.Ready && !e.Fresh)
		require.GreaterOrEqual(t, e.Ceiling, assigned.Ceiling)
		err = n.Change(ctx, &machine.NameLife{Member: "r1:6379", Life: "life.another"})
		require.ErrorIs(t, err, ErrNotReady)

		require.NoError(t, n.Change(ctx, &machine.Reconcile{Version: before, Ceiling: assigned.Ceiling}))
		e = n.Efficiency()
		require.Greater(t, e.Floor, max(later.Token, assigned.Ceiling, floor),
			"later tokens of efficiency mode are above all others")
		require.NoError(t, n.Change(ctx, &machine.FinishReconcile{Version: e.ReconcileVersion}))
		require.True(t, n.Topology().Ready)
		c.agree()
	})
}

// TestEveryRestoreHasNewVersions restores one backup to two clusters that know nothing of each
// other. Clients of the first must accept the topology of the second.
func TestEveryRestoreHasNewVersions(t *testing.T) {
	m := machine.New()
	m.Apply(&machine.SetFleet{Fleet: testFleet})
	state := replica.EncodeState(replica.Chain{}, m)
	restored := func(at time.Time) *machine.Machine {
		state, _, err := startOver(state, machine.Present{}, at)
		require.NoError(t, err)
		_, m, err := replica.DecodeState(state)
		require.NoError(t, err)
		return m
	}
	now := time.Now()
	first, second := restored(now), restored(now.Add(10*time.Second))
	for range 3 { // leaders that reconcile and fail before they finish
		first.Apply(&machine.Reconcile{})
	}
	second.Apply(&machine.Reconcile{})
	require.Greater(t, second.Version(), first.Version())
}

// A fleet that has never served cannot have granted anything that the log has forgotten, so
// neither mode waits for reports of its nodes.
func TestRestoreWithAFleetThatNeverServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		n, ctx := c.leader(), testContext(t)
		_, err := n.SetFleet(ctx, testFleet, 0, false, false)
		require.NoError(t, err)
		before, err := openSession(t, c.backend(), time.Hour).Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		var saved bytes.Buffer
		_, err = n.SaveSnapshot(ctx, &saved)
		require.NoError(t, err)
		_, err = n.RestoreSnapshot(ctx, &saved)
		require.NoError(t, err)
		after, err := openSession(t, c.backend(), time.Hour).Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.Greater(t, after.Token, before.Token)
		require.False(t, c.leader().Efficiency().Restored)
	})
}

// The Redis fleet exists outside of the log and is not rolled back with a snapshot. While it
// changes, a restore is refused.
func TestRestoreKeepsTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		n, ctx := c.leader(), testContext(t)
		var without, with bytes.Buffer
		_, err := n.SaveSnapshot(ctx, &without)
		require.NoError(t, err)
		makeReady(t, n)
		_, err = n.SaveSnapshot(ctx, &with)
		require.NoError(t, err)
		other := engine.Fleet{Namespace: "leased", Addresses: []string{"r9:6379"}, MaxTTL: time.Minute}
		version, err := n.SetFleet(ctx, other, 0, true, false)
		require.NoError(t, err)
		_, err = n.RestoreSnapshot(ctx, bytes.NewReader(with.Bytes()))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NoError(t, c.leader().Change(ctx, &machine.FinishFleet{Version: version}))
		reconcile(t, c.leader())
		for _, saved := range []*bytes.Buffer{&with, &without} {
			_, err = c.leader().RestoreSnapshot(ctx, saved)
			require.NoError(t, err)
			require.Equal(t, other, c.leader().Topology().Fleet)
			_, err = openSession(t, c.backend(), time.Hour).Acquire(ctx, lockRequest(1, "x"))
			require.ErrorIs(t, err, engine.ErrUnavailable, "not before the log is reconciled with the nodes of the fleet")
		}
	})
}

// follower returns a node that does not lead.
func (c *cluster) follower() *Node {
	leader := c.leader()
	for _, n := range c.nodes {
		if n != leader {
			return n
		}
	}
	return nil
}

// A node restores its topology after a restart, and a recovered node does not grant locks in
// efficiency mode.
func TestTopologyAfterRestartAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 1, DefaultLogStore)
		ctx := testContext(t)
		makeReady(t, c.leader())
		moveToEfficiency(t, c.leader(), "fast/")
		require.NoError(t, c.leader().SetMemberAPI(ctx, "n0", "n0:8400"))
		before := c.leader().Topology()
		var saved bytes.Buffer
		_, err := c.leader().SaveSnapshot(ctx, &saved)
		require.NoError(t, err)
		moveToEfficiency(t, c.leader(), "faster/")
		c.reopen(0)
		next, err := c.nodes[0].NextTopology(ctx, before.Version+1)
		require.NoError(t, err)
		require.True(t, next.Ready)
		require.Equal(t, engine.Efficiency, next.Policies.For("faster/x").Mode)
		require.Equal(t, "n0:8400", c.leader().MemberAPI("n0"))

		require.NoError(t, c.nodes[0].Close())
		closed := time.Now()
		floor, err := Recover(c.configs[0])
		require.NoError(t, err)
		c.restart(0)
		recovered, err := c.nodes[0].NextTopology(ctx, next.Version)
		require.NoError(t, err)
		require.GreaterOrEqual(t, recovered.Version, next.Version+1<<20)
		require.GreaterOrEqual(t, recovered.Version, machine.VersionAt(closed.Unix()), "the lost members may have gone on")
		require.False(t, recovered.Ready)
		require.Greater(t, floor, c.leader().Efficiency().Ceiling)
		require.True(t, c.leader().Efficiency().Restored)
	})
}
