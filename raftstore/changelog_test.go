package raftstore

import (
	"bytes"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/logtest"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// logTo makes the nodes of a cluster write to one log.
func logTo(log *logtest.Log) func(*Config) {
	return func(c *Config) { c.Logger = log.Logger() }
}

// Each change of leadership has one line of the new leader and one of the old one, in the
// logs of all members together.
func TestLeadershipIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelInfo)
		c := startMemory(t, 3, logTo(log))
		first := log.Once(t, "became leader")
		require.Equal(t, "n0", first.Values["leader"])
		require.Equal(t, "n0", first.Values["id"])
		require.Empty(t, first.Values["former"])

		require.NoError(t, c.nodes[0].Transfer(testContext(t), "n1"))
		eventually(t, "n1 leads", c.nodes[1].Leads)
		pass(5 * time.Second)
		lines := log.Lines("became leader")
		require.Len(t, lines, 2)
		require.Equal(t, "n1", lines[1].Values["leader"])
		require.Equal(t, "n0", lines[1].Values["former"])
		require.Equal(t, strconv.FormatUint(c.nodes[1].Status().Term, 10), lines[1].Values["term"])
		lost := log.Once(t, "lost leadership")
		require.Equal(t, "n0", lost.Values["id"])
		require.Equal(t, "transfer", lost.Values["reason"])

		c.isolate(c.nodes[1])
		eventually(t, "another leader", func() bool { return c.nodes[0].Leads() || c.nodes[2].Leads() })
		pass(5 * time.Second)
		lines = log.Lines("became leader")
		require.Len(t, lines, 3)
		require.Equal(t, "n1", lines[2].Values["former"])
		require.Len(t, log.Lines("lost leadership"), 2)
		c.heal()
		pass(5 * time.Second)
		require.Len(t, log.Lines("became leader"), 3, "no election after the heal")
	})
}

// A restored snapshot has a line of its own, and no change of leadership.
func TestRestoreIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelInfo)
		c := startMemory(t, 3, logTo(log))
		var saved bytes.Buffer
		_, err := c.nodes[0].SaveSnapshot(testContext(t), &saved)
		require.NoError(t, err)
		_, err = c.nodes[0].RestoreSnapshot(testContext(t), &saved)
		require.NoError(t, err)
		pass(5 * time.Second)
		require.Equal(t, "n0", log.Once(t,
			"restored a snapshot; all sessions have ended, and later tokens are above the floor").Values["id"])
		log.Once(t, "became leader")
		require.Zero(t, log.Count("lost leadership"))
	})
}

func TestMembershipIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelInfo)
		c := startMemory(t, 1, logTo(log))
		joining := c.add("n3", logTo(log))
		require.NoError(t, joining.Join(testContext(t), c.nodes[0]))
		require.NoError(t, joining.Join(testContext(t), c.nodes[0]), "a repeated call changes nothing")
		require.Equal(t, "n3", log.Once(t, "member added").Values["member"])
		require.Equal(t, "n3", log.Once(t, "member promoted to a voter").Values["member"])
		require.NoError(t, c.nodes[0].Remove(testContext(t), "n3"))
		pass(5 * time.Second)
		require.Equal(t, "n3", log.Once(t, "member removed").Values["member"])
	})
}

// Grants, waits, releases and expiries are logged at the level debug, by the leader.
func TestChangesOfLocksAreLoggedAtDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelDebug)
		c := startMemory(t, 3, logTo(log))
		open := func() engine.Session {
			s, err := c.backend().Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute,
				Clock: engine.MonotonicClock()})
			require.NoError(t, err)
			return s
		}
		request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"jobs/7"}, Holder: "ann"}
		first, second := open(), open()
		_, err := first.Acquire(testContext(t), request)
		require.NoError(t, err)
		pass(time.Millisecond) // the line may follow the answer
		granted := log.Once(t, "granted")
		require.Equal(t, slog.LevelDebug, granted.Level)
		require.Equal(t, "jobs/7", granted.Values["resource"])
		require.Equal(t, "ann", granted.Values["holder"])
		require.Equal(t, "1", granted.Values["token"])
		require.Equal(t, "correctness", granted.Values["mode"])

		request.Wait = true
		done := make(chan error, 1)
		go func() { _, err := second.Acquire(testContext(t), request); done <- err }()
		eventually(t, "queued", func() bool { return log.Count("queued") > 0 })
		require.NoError(t, first.Release(testContext(t), engine.Held{Nonce: 1}))
		require.NoError(t, <-done)
		pass(time.Millisecond)
		log.Once(t, "queued")
		log.Once(t, "released")
		require.Equal(t, 2, log.Count("granted"))
		pass(2 * time.Minute)
		require.Equal(t, "2", log.Once(t, "expired").Values["token"])
	})
}

// Changes of locks are logged in order by calls that run without the lock of the machine.
func TestChangesOfLocksAreLoggedWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelDebug)
		c := startMemory(t, 1, logTo(log))
		events := []machine.Event{{Type: machine.EventReleased, Resources: []fencing.Resource{"a"}, Token: 1},
			{Type: machine.EventGranted, Resources: []fencing.Resource{"a", "b"}, Token: 2}}
		before := log.Count("")
		calls := c.nodes[0].logEvents(events)
		require.Equal(t, before, log.Count(""), "the caller still has the lock")
		clear(events) // the machine may use them again
		for _, call := range calls {
			call()
		}
		lines := log.Lines("")[before:]
		require.Len(t, lines, 2)
		require.Equal(t, "released", lines[0].Message)
		require.Equal(t, "1", lines[0].Values["token"])
		require.Equal(t, "granted", lines[1].Message)
		require.Equal(t, "a,b", lines[1].Values["resource"])
	})
}

// An event that is not logged costs no allocation.
func TestQuietEventsCostNothing(t *testing.T) {
	n := openNode(t, Config{ID: "n", Storage: MemoryStorage(), Address: "127.0.0.1:0",
		Logger: logtest.New(slog.LevelInfo).Logger()})
	events := []machine.Event{{Type: machine.EventGranted, Resources: []fencing.Resource{"a"}}}
	require.Zero(t, testing.AllocsPerRun(1000, func() { n.logEvents(events) }))
}

func BenchmarkQuietEvents(b *testing.B) {
	n := openNode(b, Config{ID: "n", Storage: MemoryStorage(), Address: "127.0.0.1:0",
		Logger: logtest.New(slog.LevelInfo).Logger()})
	events := []machine.Event{{Type: machine.EventGranted, Resources: []fencing.Resource{"a"}}}
	b.ReportAllocs()
	for b.Loop() {
		n.logEvents(events)
	}
}

// The Raft library's info messages are debug messages, and a warning that it repeats is
// logged once a minute for each peer.
func TestMessagesOfTheRaftLibraryAreNoNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelDebug)
		raft := engineLogger(log.Logger(), engine.MonotonicClock())
		raft.Info("entering follower state", "leader-id", "n1")
		require.Equal(t, slog.LevelDebug, log.Once(t, "entering follower state").Level)
		raft.Warn("no known peers, aborting election")
		require.Equal(t, slog.LevelDebug, log.Once(t, "no known peers, aborting election").Level)
		for range 100 {
			raft.Warn("failed to contact", "peer", "n1", "time", hclog.Fmt("%d ms", 7))
			raft.Error("failed to contact", "server-id", "n2")
		}
		require.Equal(t, 2, log.Count("failed to contact"))
		require.Equal(t, slog.LevelWarn, log.Lines("failed to contact")[1].Level)
		require.Equal(t, "7 ms", log.Lines("failed to contact")[0].Values["time"])
		pass(repeatInterval)
		raft.Warn("failed to contact", "peer", "n1")
		require.Equal(t, "99", log.Lines("failed to contact")[2].Values["notLogged"])
	})
}

// Changes of policies, modes and the fleet have one line each, of the leader.
func TestChangesOfTheTopologyAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelInfo)
		c := startMemory(t, 3, logTo(log))
		n, ctx := c.leader(), testContext(t)
		policy := engine.Policy{Prefix: "jobs/", Mode: engine.Correctness, TTL: time.Minute}
		_, err := n.SetPolicy(ctx, policy, 0, false)
		require.NoError(t, err)
		set := log.Once(t, "policy set")
		require.Equal(t, "jobs/", set.Values["prefix"])
		require.Equal(t, "correctness", set.Values["mode"])
		require.Equal(t, n.ID(), set.Values["id"])
		require.Zero(t, log.Count("migration started"))

		_, err = n.SetFleet(ctx, engine.Fleet{Addresses: []string{"a:1"}, Namespace: "leased", MaxTTL: time.Minute}, 0, false,
			false)
		require.NoError(t, err)
		require.Equal(t, "a:1", log.Once(t, "Redis fleet set").Values["nodes"])
		policy.Mode = engine.Efficiency
		_, err = n.SetPolicy(ctx, policy, 0, false)
		require.NoError(t, err)
		started := log.Once(t, "migration started")
		require.Equal(t, "correctness", started.Values["from"])
		require.Equal(t, "efficiency", started.Values["to"])
		_, err = n.AbortMigration(ctx, "jobs/")
		require.NoError(t, err)
		log.Once(t, "migration aborted")
		_, err = n.DeletePolicy(ctx, "jobs/", 0, false)
		require.NoError(t, err)
		pass(5 * time.Second)
		log.Once(t, "policy deleted")
		require.Zero(t, log.Count("migration finished"))
	})
}

// The end of a migration and of a change of the fleet has one line, even if the leader
// finishes it twice.
func TestEndsOfChangesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logtest.New(slog.LevelInfo)
		c := startMemory(t, 3, logTo(log))
		n, ctx := c.leader(), testContext(t)
		makeReady(t, n)
		version, err := n.SetPolicy(ctx, engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, 0, true)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, n.Change(ctx, &machine.FinishMigration{Prefix: "fast/", Version: version}))
		}
		require.Equal(t, "fast/", log.Once(t, "migration finished").Values["prefix"])
		log.Once(t, "migration started")
		require.Zero(t, log.Count("Redis fleet changed"))

		next := engine.Fleet{Namespace: "leased", Addresses: []string{"r9:6379"}, MaxTTL: time.Minute}
		version, err = n.SetFleet(ctx, next, 0, true, false)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, n.Change(ctx, &machine.FinishFleet{Version: version}))
		}
		require.Equal(t, "r9:6379", log.Once(t, "Redis fleet changed").Values["nodes"])
		require.Len(t, log.Lines("Redis fleet set"), 2)
	})
}
