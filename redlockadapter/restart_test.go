package redlockadapter_test

import (
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
		before, instead func(t *testing.T, s *testserver.RedisServer)
	}{
		"an old folder is put back": {
			func(t *testing.T, s *testserver.RedisServer) { require.NoError(t, s.Save()) },
			func(t *testing.T, s *testserver.RedisServer) { require.NoError(t, s.PutBack()) },
		},
		"its file was switched off under way": {
			func(t *testing.T, s *testserver.RedisServer) {
				c := redis.NewClient(&redis.Options{Addr: s.Addr})
				defer c.Close()
				require.NoError(t, c.ConfigSet(patient(t), "appendonly", "no").Err())
			},
			func(_ *testing.T, s *testserver.RedisServer) { s.Stop() },
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
			c.instead(t, f.servers[0])
			require.NoError(t, f.servers[0].Start())
			require.Eventually(t, func() bool { return statusOf(t, b, 0).Max > 0 && healthy(b) }, patience, time.Millisecond)
			f.servers[1].Pause()
			defer f.servers[1].Resume()
			k.take() // now it is up to the one that went back, and the one that did not hear
		})
	}
}

// After a power cut there is nobody else to ask.
func TestNodesThatAllRestartedAreBelieved(t *testing.T) {
	for _, n := range []int{1, 3} {
		f := startFleet(t, n, durable)
		f.config.MaxTTL = 10 * patience // that is not waited for
		f.init(t)
		k := newTaker(t, f.backend(t))
		k.take()
		restart(t, f.servers...)
		k.take()
	}
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
