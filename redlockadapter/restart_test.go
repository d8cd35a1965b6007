package redlockadapter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

var durable = testserver.RedisAppendOnly()

// everySecond may lose what was answered in the last second.
func everySecond() []testserver.RedisOption {
	return []testserver.RedisOption{testserver.RedisConfig("appendonly", "yes"), testserver.RedisConfig("appendfsync", "everysec")}
}

// statusOf waits until a node can be asked.
func statusOf(t *testing.T, b *redlockadapter.Backend, node int) (s redlockadapter.NodeStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		s = b.NodeStatuses(patient(t))[node]
		return s.Err == nil
	}, patience, time.Millisecond)
	return s
}

func restart(t *testing.T, servers ...*testserver.RedisServer) {
	t.Helper()
	for _, server := range servers {
		server.Stop()
	}
	for _, server := range servers {
		require.NoError(t, server.Start())
	}
}

// A server that writes every command to disk before it answers has forgotten no
// lock in a restart: it comes back without a quarantine. Any other may have.
func TestOnlyADurableNodeComesBackWithoutQuarantine(t *testing.T) {
	for name, c := range map[string]struct {
		options []testserver.RedisOption
		atOnce  bool
	}{
		"every command on disk": {[]testserver.RedisOption{durable}, true},
		"every second on disk":  {everySecond(), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, 3, c.options...)
			f.config.MaxTTL = 10 * patience
			f.init(t)
			b := f.backend(t)
			k := newTaker(t, b)
			k.take()
			epoch := b.Epoch()
			restart(t, f.servers[0])
			if c.atOnce {
				require.Eventually(t, func() bool { k.take(); return healthy(b) }, patience, time.Millisecond)
				require.Greater(t, statusOf(t, b, 0).Epoch, epoch, "nor is it taken at its word")
				return
			}
			s := statusOf(t, b, 0)
			require.True(t, s.Empty)
			require.False(t, s.Restarted)
			require.Greater(t, s.Quarantine, patience)
		})
	}
}

// What a restart may have lost depends on the run that has ended, not on the one
// that begins: a server that wrote to disk once a second, at any time since it
// started, is not believed when it comes back with better settings.
func TestRestartIsJudgedByTheRunThatEnded(t *testing.T) {
	for name, settings := range map[string][]string{
		"from the beginning": {"everysec"},
		"for a while":        {"always", "everysec", "always"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, 3, durable)
			f.config.MaxTTL = 10 * patience
			c := redis.NewClient(f.config.Nodes[0])
			defer c.Close()
			for i, fsync := range settings {
				require.NoError(t, c.ConfigSet(patient(t), "appendfsync", fsync).Err())
				if i == 0 {
					f.init(t)
				}
				f.backend(t) // someone connects
			}
			restart(t, f.servers[0])
			s := statusOf(t, f.backend(t), 0)
			require.True(t, s.Empty)
			require.False(t, s.Restarted, "it is taken for one that has lost nothing")
		})
	}
}

// A node that says it has lost nothing may be wrong. While a majority has not been
// restarted that does not matter: nothing it says is taken for how far tokens
// have come.
func TestOldDataOfOneNodeLetsNoTokenGoBack(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, s *testserver.RedisServer)
		then   func(t *testing.T, s, other *testserver.RedisServer)
	}{
		"an old folder is put back": {
			func(t *testing.T, s *testserver.RedisServer) { require.NoError(t, s.Save()) },
			func(t *testing.T, s, _ *testserver.RedisServer) {
				require.NoError(t, s.PutBack())
				require.NoError(t, s.Start())
			},
		},
		"it is a replica for a while": {func(*testing.T, *testserver.RedisServer) {}, replicate},
		"its file was switched off under way": {
			func(t *testing.T, s *testserver.RedisServer) {
				c := redis.NewClient(&redis.Options{Addr: s.Addr})
				defer c.Close()
				require.NoError(t, c.ConfigSet(patient(t), "appendonly", "no").Err())
			},
			func(t *testing.T, s, _ *testserver.RedisServer) { restart(t, s) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, 3, durable).init(t)
			b := f.backend(t)
			k := newTaker(t, b)
			k.take()
			c.before(t, f.servers[0])
			f.servers[2].Pause()
			for b.NodeStatuses(patient(t))[2].Err == nil { // what is on its way will be heard
				k.take()
			}
			for range 100 { // the third node does not hear of these
				k.take()
			}
			f.servers[2].Resume()
			c.then(t, f.servers[0], f.servers[2])
			require.Eventually(t, func() bool { return healthy(b) }, patience, time.Millisecond)
			f.servers[1].Pause()
			defer f.servers[1].Resume()
			k.take() // now it is up to the one that went back, and the one that did not hear
		})
	}
}

// replicate makes a server a replica of another one until it has its data, and
// then a master again. Nobody's connection ends.
func replicate(t *testing.T, s, other *testserver.RedisServer) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	host, port, _ := cutAddr(other.Addr)
	require.NoError(t, c.Do(patient(t), "replicaof", host, port).Err())
	require.Eventually(t, func() bool { return infoField(t, c, "master_link_status") == "up" }, patience, time.Millisecond)
	require.NoError(t, c.Do(patient(t), "replicaof", "no", "one").Err())
}

// After a power cut there is nobody else to ask, also if some stay down.
func TestNodesThatAllRestartedAreBelieved(t *testing.T) {
	for _, c := range []struct{ nodes, dead int }{{1, 0}, {3, 0}, {3, 1}, {5, 1}, {5, 2}} {
		t.Run(fmt.Sprintf("%d of %d", c.nodes-c.dead, c.nodes), func(t *testing.T) {
			f := startFleet(t, c.nodes, durable)
			f.config.MaxTTL = 10 * patience // that is not waited for
			f.init(t)
			b := f.backend(t)
			k := newTaker(t, b)
			k.take()
			for _, s := range f.servers[c.nodes-c.dead:] {
				s.Stop()
			}
			restart(t, f.servers[:c.nodes-c.dead]...)
			k.take()
			for _, s := range f.servers[c.nodes-c.dead:] {
				require.NoError(t, s.Start())
			}
			require.Eventually(t, func() bool { return healthy(b) }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return !f.marked(t) }, patience, time.Millisecond, "what they say is what counts now")
			restart(t, f.servers[0]) // the others are a majority that was not restarted again
			require.Eventually(t, func() bool { k.take(); return healthy(b) }, patience, time.Millisecond)
		})
	}
}

// marked reports whether a node is still one that was taken at its word.
func (f *fleet) marked(t *testing.T) bool {
	t.Helper()
	for _, node := range f.config.Nodes {
		c := redis.NewClient(node)
		defer c.Close()
		if marked, err := c.HExists(patient(t), hashOf(t, c), "believed").Result(); err != nil || marked {
			return true
		}
	}
	return false
}

// A hash that came from another node must not stay: that node could be given it
// back one day, and take it for its own.
func TestRejoinLeavesNoDataOfAnotherRun(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr})
	defer c.Close()
	require.NoError(t, c.HSet(patient(t), "{x}:theirs", "state", "1 0 7 0").Err())
	require.NoError(t, c.Set(patient(t), "{x}:run", "theirs", 0).Err())
	run := func(name string, args ...any) []string {
		text, err := redlockadapter.Script(name)
		require.NoError(t, err)
		reply, err := c.Eval(patient(t), text, []string{"{x}:mine"}, args...).StringSlice()
		require.NoError(t, err)
		return reply
	}
	require.Equal(t, []string{"ok"}, run("join", "n"))
	require.Equal(t, []string{"ok"}, run("init", "n", 2, "9", 0, "mine", 0, "1", "1"))
	require.Zero(t, c.Exists(patient(t), "{x}:theirs").Val())
	require.Equal(t, "mine", c.Get(patient(t), "{x}:run").Val())

	require.Equal(t, "1", run("status")[6], "it was taken at its word")
	long := time.Now().Add(-2 * time.Minute).UnixMilli()
	require.NoError(t, c.HSet(patient(t), "{x}:mine", "believed", long).Err())
	require.Empty(t, run("status")[6], "but that does not last")
}

// Nobody asks for anything, and yet an emptied node comes back.
func TestIdleProcessBringsAnEmptiedNodeBack(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = 300 * time.Millisecond
	f.init(t)
	f.backend(t)
	c := redis.NewClient(f.config.Nodes[0])
	defer c.Close()
	hash := hashOf(t, c)
	require.NoError(t, c.FlushAll(patient(t)).Err())
	require.Eventually(t, func() bool { return c.HGet(patient(t), hash, "state").Val() != "" }, patience, 10*time.Millisecond)
}

// A process that worked before is told what to do, like one that starts.
func TestRunningProcessIsToldWhatHelps(t *testing.T) {
	f := startFleet(t, 3, durable).init(t)
	b := f.backend(t)
	newTaker(t, b).take()
	s := open(t, b, time.Second)
	nonce := lease.Nonce(0)
	says := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			nonce++
			_, err := s.Acquire(patient(t), request(nonce, "a"))
			return err != nil && strings.Contains(err.Error(), text) && errors.Is(err, lease.ErrUnavailable)
		}, patience, 10*time.Millisecond)
	}
	require.NoError(t, f.servers[0].Wipe())
	require.NoError(t, f.servers[0].Start())
	f.servers[2].Stop()
	says("bring those back that are out of reach")
	require.NoError(t, f.servers[1].Wipe())
	require.NoError(t, f.servers[1].Start())
	says("leased redis init --floor")
}

// Those that are out of reach may know more than a node that was restarted. They
// are waited for, until they are seen to have forgotten it.
func TestRestartedNodeWaitsForThoseOutOfReach(t *testing.T) {
	for name, back := range map[string]func(*testserver.RedisServer) error{
		"they come back": func(s *testserver.RedisServer) error { s.Resume(); return nil },
		"empty ones come instead": func(s *testserver.RedisServer) error {
			if err := s.Wipe(); err != nil {
				return err
			}
			return s.Start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, 3, durable).init(t)
			b := f.backend(t)
			k := newTaker(t, b)
			k.take()
			f.servers[1].Pause()
			restart(t, f.servers[0])
			require.True(t, statusOf(t, b, 0).Restarted)
			_, err := open(t, f.backend(t), time.Second).Acquire(patient(t), request(1, "other"))
			require.ErrorIs(t, err, lease.ErrUnavailable)
			require.ErrorContains(t, err, "wait for a majority that was not; bring those back that are out of reach")
			require.True(t, statusOf(t, b, 0).Restarted)
			require.NoError(t, back(f.servers[1]))
			k.take()
			require.Eventually(t, func() bool { return healthy(b) }, patience, time.Millisecond)
		})
	}
}
