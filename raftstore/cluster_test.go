package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// testTimeout ends a test that hangs. It does not bound the speed of anything.
const testTimeout = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// firstOf returns the next value of a channel, and fails the test if none arrives. A plain
// receive would hang: the Raft library has timers, so a bubble with a node in it never
// deadlocks.
func firstOf[T any](t testing.TB, values <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-values:
		return v
	case <-time.After(5 * testTimeout):
		require.FailNow(t, "never: "+what)
		panic("unreachable")
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-deadline.C:
			require.FailNow(t, "never: "+what)
		}
	}
}

// retrying repeats the calls of a session until their outcome is known, as
// lease.Client does.
type retrying struct{ engine.Session }

func (s retrying) Acquire(ctx context.Context, request engine.Request) (grant engine.Grant, err error) {
	err = retry(ctx, func() (err error) { grant, err = s.Session.Acquire(ctx, request); return err })
	return grant, err
}

func (s retrying) Renew(ctx context.Context) (extended []engine.Nonce, err error) {
	err = retry(ctx, func() (err error) { extended, err = s.Session.Renew(ctx); return err })
	return extended, err
}

func (s retrying) Release(ctx context.Context, nonce engine.Nonce) error {
	return retry(ctx, func() error { return s.Session.Release(ctx, engine.Held{Nonce: nonce}) })
}

// retry repeats a call while there is no leader.
func retry(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || ctx.Err() != nil || !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// tcpConfig configures a node with a folder of its own on a free loopback port.
func tcpConfig(t testing.TB, id string, kind logstore.Kind) Config {
	return Config{ID: id, Dir: t.TempDir(), Address: "127.0.0.1:0", LogStore: kind, Logger: quiet,
		Fatal: func(err error) { t.Errorf("node %s ended: %v", id, err) }}
}

// openNode starts a node, and stops it at the end of the test.
func openNode(t testing.TB, c Config) *Node {
	t.Helper()
	n, err := Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// stop transfers the leadership, if a node leads others, and closes the node.
func stop(ctx context.Context, n *Node) error {
	_ = n.Transfer(ctx, "")
	return n.Close()
}

// cluster is a cluster whose nodes run in this process.
type cluster struct {
	t       testing.TB
	nodes   []*Node
	configs []Config
	inmem   []*raft.InmemTransport // of memory clusters
}

// startTCP starts a cluster on real folders and loopback TCP, in real time.
func startTCP(t testing.TB, size int, kind logstore.Kind, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i := range size {
		config := tcpConfig(t, fmt.Sprintf("n%d", i), kind)
		for _, f := range change {
			f(&config)
		}
		n := openNode(t, config)
		config.Address = n.Address() // the same port when it is opened again
		c.nodes, c.configs = append(c.nodes, n), append(c.configs, config)
	}
	c.bootstrap()
	return c
}

// startMemory starts a cluster without disks and network, for bubbles.
func startMemory(t testing.TB, size int, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i := range size {
		c.add(fmt.Sprintf("n%d", i), change...)
	}
	c.bootstrap()
	return c
}

// startDisk starts a cluster on real folders without a network, for bubbles.
func startDisk(t testing.TB, size int, kind logstore.Kind, change ...func(*Config)) *cluster {
	t.Helper()
	return startMemory(t, size, append([]func(*Config){onDisk(t, kind)}, change...)...)
}

// onDisk gives a node a folder of its own.
func onDisk(t testing.TB, kind logstore.Kind) func(*Config) {
	return func(c *Config) { c.Storage, c.Dir, c.LogStore = nil, t.TempDir(), kind }
}

// add opens another node, connected to the others in memory. It belongs to no
// cluster yet.
func (c *cluster) add(id string, change ...func(*Config)) *Node {
	c.t.Helper()
	config := Config{ID: id, Storage: MemoryStorage(), Logger: quiet, Clock: engine.MonotonicClock(),
		Fatal: func(err error) { c.t.Errorf("node %s ended: %v", id, err) }}
	_, transport := raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), 100*time.Millisecond)
	config.Transport = transport
	for _, f := range change {
		f(&config)
	}
	c.inmem, c.configs = append(c.inmem, transport), append(c.configs, config)
	c.heal()
	c.nodes = append(c.nodes, openNode(c.t, config))
	return c.nodes[len(c.nodes)-1]
}

// eachKind runs a test in virtual time for every kind of log store.
func eachKind(t *testing.T, run func(t *testing.T, kind logstore.Kind)) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { run(t, kind) })
		})
	}
}

// bootstrap begins a cluster with the first node and has the others join.
func (c *cluster) bootstrap() {
	c.t.Helper()
	require.NoError(c.t, c.nodes[0].Bootstrap())
	c.leader()
	for _, n := range c.nodes[1:] {
		ctx := testContext(c.t)
		require.NoError(c.t, retry(ctx, func() error { return n.Join(ctx, c.leader()) })) // another node may lead by then
	}
	// A node becomes a voter when it is almost caught up. Wait until all are, so that
	// each node can become the next leader.
	eventually(c.t, "all nodes have the whole log", func() bool {
		for _, n := range c.nodes {
			if n.Status().LastIndex != c.nodes[0].Status().LastIndex {
				return false
			}
		}
		return true
	})
}

// leader waits for a node that leads and returns it.
func (c *cluster) leader() *Node {
	c.t.Helper()
	var leader *Node
	eventually(c.t, "a leader", func() bool {
		for _, n := range c.nodes {
			if n.Leads() {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

// isolate disconnects a node of a memory cluster from all others.
func (c *cluster) isolate(n *Node) {
	for i, other := range c.nodes {
		if other != n {
			c.inmem[i].Disconnect(raft.ServerAddress(n.ID()))
		} else {
			c.inmem[i].DisconnectAll()
		}
	}
}

// heal connects all nodes of a memory cluster.
func (c *cluster) heal() {
	for i := range c.inmem {
		for j := range c.inmem {
			if i != j {
				c.inmem[i].Connect(c.inmem[j].LocalAddr(), c.inmem[j])
			}
		}
	}
}

func (c *cluster) backend() *Backend {
	b, err := NewBackend(c.nodes...)
	require.NoError(c.t, err)
	return b
}

// agree waits until all nodes have applied the same entry, and checks that they have
// the same chain hash.
func (c *cluster) agree() replica.Chain {
	c.t.Helper()
	var chains []replica.Chain
	eventually(c.t, "all nodes at one entry", func() bool {
		chains = chains[:0]
		for _, n := range c.nodes {
			chains = append(chains, n.Status().Chain)
		}
		return !slices.ContainsFunc(chains, func(chain replica.Chain) bool { return chain.Index != chains[0].Index })
	})
	for i, chain := range chains {
		require.Equal(c.t, chains[0], chain, c.nodes[i].ID())
	}
	return chains[0]
}

// diverge changes the chain hash of a replica.
func diverge(n *Node) {
	chain := n.fsm.Chain()
	chain.Hash[0]++
	var state []byte
	n.fsm.Read(func(m *machine.Machine) { state = replica.EncodeState(chain, m) })
	if err := n.fsm.Restore(io.NopCloser(bytes.NewReader(state))); err != nil {
		panic(err)
	}
}
