package redlockadapter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// savePoints makes a server keep its data on disk by snapshots, as redis-server does by default.
func savePoints() testserver.RedisOption { return testserver.RedisConfig("save", "3600 1") }

// Nodes that are new initialise themselves: several processes start at once, and tokens start at 1.
func TestNewNodesAreInitialised(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes  int
		option testserver.RedisOption
	}{"append-only": {3, testserver.RedisAppendOnly()}, "snapshots": {1, savePoints()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, c.nodes, c.option)
			backends := make([]*redlockadapter.Backend, 3)
			var starting sync.WaitGroup
			for i := range backends {
				starting.Go(func() { backends[i] = f.backend(t) })
			}
			starting.Wait()
			k := newLocker(t, f.config)
			require.EqualValues(t, 1, k.acquire(backends[0]))
			for _, b := range backends {
				k.acquireN(b, 5)
			}
			require.Len(t, live(t, backends[1]), c.nodes)
		})
	}
}

// New does not initialise nodes that may have voted. It fails at once, with the command for an operator.
func TestNewRefusesNodesThatMayHaveVoted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes   int
		options []testserver.RedisOption
		prepare func(f *fleet)
		says    string
	}{
		"keeps nothing": {nodes: 1, says: "enable its append-only file"},
		"no permission to tell": {nodes: 1, options: []testserver.RedisOption{savePoints(),
			testserver.RedisConfig("rename-command", "CONFIG", "")},
			says: "cannot tell whether the node keeps its data on disk"},
		"a node does not answer": {nodes: 3, options: []testserver.RedisOption{testserver.RedisAppendOnly()},
			prepare: func(f *fleet) { f.servers[2].Stop() }, says: "fewer than a quorum"},
		"others lost everything": {nodes: 3, options: []testserver.RedisOption{testserver.RedisAppendOnly()},
			prepare: func(f *fleet) {
				b := f.backend(t)
				newLocker(t, f.config).acquireN(b, 20)
				require.NoError(t, b.Close(testContext(t)))
				for _, s := range f.servers[:2] {
					s.Stop()
					require.NoError(t, s.Wipe())
					require.NoError(t, s.Start())
				}
			}, says: "fewer than a quorum"},
		"power cut, others lost everything": {nodes: 3, options: []testserver.RedisOption{savePoints()},
			prepare: func(f *fleet) {
				b := f.backend(t)
				newLocker(t, f.config).acquireN(b, 5) // no disk has these grants
				require.NoError(t, b.Close(testContext(t)))
				for i, s := range f.servers {
					s.Kill()
					if i < 2 {
						require.NoError(t, s.Wipe())
					}
					require.NoError(t, s.Start())
				}
			}, says: "fewer than a quorum"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, c.nodes, c.options...)
			f.config.NodeTimeout = time.Second // New waits for others that may be initialising the nodes
			if c.prepare != nil {
				c.prepare(f)
			}
			waitFor(t, func() bool { // a busy server may not answer in time
				_, err := redlockadapter.New(testContext(t), f.config)
				require.ErrorIs(t, err, engine.ErrUnavailable)
				if !errors.Is(err, redlockadapter.ErrNoState) {
					return false
				}
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, "leased redis init --redis "+f.servers[0].Addr)
				return true
			})
		})
	}
}

// A new node that answers too late needs no operator: the next New initialises it.
func TestNewNodeAnswersTooLate(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"INFO", "CONFIG"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 1)
				n := f.nodes[0]
				var reported, answersInTime atomic.Bool
				n.mini.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
					if command == late && reported.Load() && !answersInTime.Swap(true) {
						<-time.After(2 * redlockadapter.DefaultNodeTimeout)
					}
					switch command {
					case "EVAL", "EVALSHA":
						reported.Store(true) // it was connected before
					case "CONFIG":
						c.WriteStrings([]string{"save", "3600 1"})
						return true
					}
					return n.before(c, command, args...)
				})
				_, err := redlockadapter.New(t.Context(), f.config)
				require.ErrorIs(t, err, engine.ErrUnavailable)
				require.NotErrorIs(t, err, redlockadapter.ErrNoState)
				require.ErrorContains(t, err, n.name+": node is unreachable")
				require.True(t, answersInTime.Load())
				require.EqualValues(t, 1, acquireAlone(t, f.backend(t), "a").Token)
			})
		})
	}
}

// The only Redis was replaced by an empty one: Acquire does not wait for an operator, and a process that runs
// keeps others from taking the server for a new one.
func TestAcquireDoesNotWaitForAnOperator(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1, savePoints()).withShortQuarantine().init(t)
	b := f.backend(t)
	client, err := lease.New(b, lease.WithPolicies(engine.Policy{TTL: shortQuarantine}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	l, err := client.Acquire(testContext(t), "jobs/7")
	require.NoError(t, err)
	require.NoError(t, l.Release(testContext(t)))

	s := f.servers[0]
	s.Stop()
	require.NoError(t, s.Wipe())
	require.NoError(t, s.Start())
	_, err = client.Acquire(testContext(t), "jobs/7") // waits while the server is unreachable
	require.ErrorIs(t, err, redlockadapter.ErrNoState)
	require.ErrorContains(t, err, "leased redis init --redis "+s.Addr+" --redis-max-ttl 2s")
	waitFor(t, func() bool {
		_, err = redlockadapter.New(testContext(t), f.config)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		return errors.Is(err, redlockadapter.ErrNoState)
	})

	require.ErrorContains(t, err, "run 'leased redis init")
	_, err = client.Acquire(testContext(t), "jobs/7")
	require.ErrorContains(t, err, "this process was granted tokens up to 1")

	require.NoError(t, redlockadapter.Init(testContext(t), f.config, fencing.None), "an operator makes a mistake")
	_, err = client.Acquire(testContext(t), "jobs/7")
	require.ErrorIs(t, err, redlockadapter.ErrNoState)
	require.ErrorContains(t, err,
		"the nodes were initialised with the floor 0, but this process was granted tokens up to 1")
	s.Stop()
	require.NoError(t, s.Wipe())
	require.NoError(t, s.Start())

	require.NoError(t, redlockadapter.Init(testContext(t), f.config, 1<<32))
	l, err = client.Acquire(testContext(t), "jobs/7")
	require.NoError(t, err)
	require.Greater(t, l.Token(), fencing.Token(1<<32))
}

// A floor says that tokens were granted: their leases may still be held.
func TestInitWithAFloorWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		began := engine.MonotonicClock().Now()
		require.NoError(t, redlockadapter.Init(t.Context(), f.config, 1<<32))
		require.GreaterOrEqual(t, engine.MonotonicClock().Now().Since(began), f.config.MaxTTL)
		require.Greater(t, acquireAlone(t, f.backend(t), "a").Token, fencing.Token(1<<32))
	})
}

// The nodes may be named by clients that a program has.
func TestNodesOfClients(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1, savePoints())
	f.config.Nodes, f.config.Clients = nil, []redis.UniversalClient{f.client(t, 0)}
	k := newLocker(t, f.config)
	k.acquire(f.backend(t))

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{f.servers[0].Addr}})
	defer cluster.Close()
	f.config.Clients = append(f.config.Clients, cluster)
	_, err := redlockadapter.New(testContext(t), f.config)
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, "Redis client 2 is a *redis.ClusterClient")
}

// The error of unreachable nodes is one line, which names each node once.
func TestErrorOfUnreachableNodes(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for _, s := range f.servers {
		s.Stop()
	}
	f.config.NodeTimeout = time.Second
	_, err := redlockadapter.New(testContext(t), f.config)
	require.EqualError(t, err, "lock service is unavailable: 0 of 3 Redis nodes agreed, 2 are needed: "+
		f.servers[0].Addr+", "+f.servers[1].Addr+", "+f.servers[2].Addr+
		": node is unreachable: connect: connection refused")
}

// Another process has joined one of three new nodes and does not go on: New succeeds when the others vote.
func TestNewNeedsAQuorumOfTheNewNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		for _, n := range f.nodes {
			n.mini.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
				if command == "CONFIG" {
					c.WriteStrings([]string{"save", "3600 1"})
					return true
				}
				return n.before(c, command, args...)
			})
		}
		joined, node, ended := f.nodes[2], "{leased}:"+f.nodes[2].server()+":node", make(chan struct{})
		var joining sync.WaitGroup
		joining.Go(func() {
			for {
				joined.mini.HSet(node, "join", "another", "joined", fmt.Sprint(now().UnixMilli()))
				select {
				case <-time.After(time.Second):
				case <-ended:
					return
				}
			}
		})
		b := f.backend(t)
		close(ended)
		joining.Wait()
		require.Equal(t, []int{0, 1}, live(t, b))
		require.EqualValues(t, 1, acquireAlone(t, b, "a").Token)
		advance(3 * virtualTTL)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
	})
}

// The default timeout is not above the longest TTL.
func TestDefaultTimeoutFitsTheLongestTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 1)
		f.config.MaxTTL = redlockadapter.DefaultNodeTimeout / 2
		f.init(t)
		newLocker(t, f.config).acquire(f.backend(t))
	})
}
