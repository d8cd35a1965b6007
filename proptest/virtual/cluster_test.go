package virtual

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	raftreplica "github.com/leased-project/leased/raftstore/replica"
)

// runTimeout ends a run that hangs, in virtual time.
const runTimeout = 10 * time.Minute

// member is a host: its disk survives a crash of its node.
type member struct {
	name      string
	busy      chan struct{} // held by the fault that changes disk and node
	disk      *disk
	transport *memTransport
	node      *raftstore.Node // nil while it is down
}

// cluster is a cluster of raftstore nodes on an in-memory network.
type cluster struct {
	history     *history
	logObserver *logObserver
	network     *network
	logBuffer   *logBuffer
	config      raftstore.Config

	leaving chan struct{} // held while a member is removed

	mu      sync.Mutex
	members []*member
	view    *view
	work    sync.WaitGroup
}

// view is the set of nodes that clients can reach.
type view struct {
	nodes   []*raftstore.Node
	backend *raftstore.Backend
}

// startCluster starts a cluster: one node bootstraps, the others join.
func startCluster(s *history, size int, seed uint64) (*cluster, error) {
	d := &logBuffer{}
	c := &cluster{history: s, logObserver: newLogObserver(s), network: newNetwork(seed), logBuffer: d,
		leaving: make(chan struct{}, 1),
		config: raftstore.Config{Logger: d.logger(), Clock: engine.MonotonicClock(),
			SnapshotEntries: 64, SnapshotInterval: 10 * time.Second}}
	for i := range size {
		m := &member{name: fmt.Sprint("n", i), busy: make(chan struct{}, 1), disk: newDisk()}
		c.members = append(c.members, m)
		if err := c.open(m); err != nil {
			return c, err
		}
	}
	first := c.members[0].node
	if err := first.Bootstrap(); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	for _, m := range c.members[1:] {
		if err := c.join(ctx, m); err != nil {
			return c, err
		}
	}
	return c, nil
}

// open starts the node of a member from its disk. A node that ends at once, because its
// disk is too slow, is started again.
func (c *cluster) open(m *member) error {
	for range 100 {
		node, transport, err := c.start(m)
		if err != nil {
			return fmt.Errorf("open %s: %w", m.name, err)
		}
		if node != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			m.node, m.transport = node, transport
			return c.refresh()
		}
		c.network.detach(transport)
		wait(context.Background(), time.Second)
	}
	return fmt.Errorf("open %s: the node does not start", m.name)
}

// start starts the node once. The node is nil if it ended during the start, which ends
// the goroutine, like a process.
func (c *cluster) start(m *member) (*raftstore.Node, *memTransport, error) {
	config := c.config
	config.ID, config.Storage, config.Observer = m.name, m.disk.open(), &replica{c.logObserver, m.name}
	transport := c.network.attach(m.name)
	config.Transport = transport
	config.Fatal = func(err error) {
		var diverged *raftreplica.DivergenceError
		if errors.As(err, &diverged) {
			c.history.broken("%v", err)
		}
		c.network.detach(transport)
	}
	var node *raftstore.Node
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		node, err = raftstore.Open(config)
	}()
	<-ended
	return node, transport, err
}

// refresh makes a new view. The caller holds mu.
func (c *cluster) refresh() error {
	v := &view{}
	for _, m := range c.members {
		if m.node != nil {
			v.nodes = append(v.nodes, m.node)
		}
	}
	if len(v.nodes) == 0 {
		return nil // clients keep the old nodes
	}
	var err error
	v.backend, err = raftstore.NewBackend(v.nodes...) // as in the server: clients try again
	c.view = v
	return err
}

// nodes returns the nodes that are up.
func (c *cluster) nodes() []*raftstore.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var up []*raftstore.Node
	for _, m := range c.members {
		if m.node != nil {
			up = append(up, m.node)
		}
	}
	return up
}

// leader returns a node that leads, or nil.
func (c *cluster) leader() *raftstore.Node {
	nodes := c.nodes()
	if i := slices.IndexFunc(nodes, (*raftstore.Node).Leads); i >= 0 {
		return nodes[i]
	}
	return nil
}

// crash ends a node like a power loss: it sends nothing more and writes nothing more.
func (c *cluster) crash(m *member) {
	c.mu.Lock()
	node := m.node
	m.node = nil
	c.mu.Unlock()
	if node == nil {
		return
	}
	c.network.detach(m.transport)
	m.disk.crash()
	_ = node.Close() // its last writes are lost
}

// revive restarts a node that ended by itself. The caller holds m.
func (c *cluster) revive(m *member) error {
	if m.node.Failure() == nil {
		return nil
	}
	c.crash(m)
	return c.open(m)
}

// join adds a member to the cluster, with retries.
func (c *cluster) join(ctx context.Context, m *member) error {
	return c.retryOnLeader(ctx, func(leader *raftstore.Node) error {
		if err := c.revive(m); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := m.node.Join(limited, leader)
		if errors.Is(err, engine.ErrInvalid) { // it began to join under a deposed leader: start over
			c.crash(m)
			m.disk = newDisk()
			return errors.Join(c.open(m), leader.Remove(limited, m.name), err)
		}
		return err
	})
}

// remove removes a member from the cluster.
func (c *cluster) remove(ctx context.Context, m *member) error {
	return c.retryOnLeader(ctx, func(leader *raftstore.Node) error {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return leader.Remove(limited, m.name)
	})
}

// waitForVoters waits until every node has applied all committed entries and knows all
// voters. A node does not vote for one that it does not know as a voter: if the nodes that
// know a promotion lose their data first, no leader can be elected. The caller holds mine.
func (c *cluster) waitForVoters(ctx context.Context, mine *member) error {
	for ctx.Err() == nil {
		if err := c.revive(mine); err != nil {
			return err
		}
		ready, commit := 0, uint64(0)
		if leader := c.leader(); leader != nil {
			commit = leader.Status().Commit
		}
		for _, n := range c.nodes() {
			members := n.Members()
			if commit > 0 && n.Status().Applied >= commit && len(members) == len(c.members) && !slices.ContainsFunc(members,
				func(m raftstore.Member) bool { return !m.Voter }) {
				ready++
			}
		}
		if ready == len(c.members) {
			return nil
		}
		wait(ctx, 200*time.Millisecond)
	}
	return fmt.Errorf("wait for all voters: %w", context.Cause(ctx))
}

// retryOnLeader repeats an operation on the current leader until it succeeds.
func (c *cluster) retryOnLeader(ctx context.Context, do func(leader *raftstore.Node) error) error {
	err := errors.New("no leader")
	for ctx.Err() == nil {
		if leader := c.leader(); leader != nil {
			if err = do(leader); err == nil {
				return nil
			}
		}
		wait(ctx, 200*time.Millisecond)
	}
	return fmt.Errorf("no success on a leader: %w (last error: %w)", context.Cause(ctx), err)
}

// agree waits until all nodes have applied the same entries, and records their hashes. A
// node that stays behind for minutes after the last fault is replaced and reported.
func (c *cluster) agree(ctx context.Context) error {
	for tries := 0; ; tries++ {
		var indexes []uint64
		for _, n := range c.nodes() {
			indexes = append(indexes, n.Status().Chain.Index)
		}
		if len(indexes) == len(c.members) && slices.Min(indexes) == slices.Max(indexes) {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the nodes are at indexes %v\n%s", indexes, c.state())
		}
		if tries == 3000 { // five minutes
			c.replaceLagging(ctx, slices.Min(indexes))
		}
		wait(ctx, 100*time.Millisecond)
	}
	c.applied()
	return nil
}

// replaceLagging replaces the nodes that are stuck at an index.
func (c *cluster) replaceLagging(ctx context.Context, index uint64) {
	fmt.Fprintf(os.Stderr, "a node is stuck at index %d for unknown reasons:\n%s", index, c.state())
	for _, n := range c.nodes() {
		if m := c.named(n.ID()); n.Status().Chain.Index == index {
			m.busy <- struct{}{}
			c.replace(ctx, m, "lagging")
			<-m.busy
		}
	}
}

// applied records the chain hash of every node.
func (c *cluster) applied() {
	for _, n := range c.nodes() {
		c.logObserver.applied(n)
	}
}

// close stops all nodes.
func (c *cluster) close() {
	c.work.Wait()
	for _, n := range c.nodes() {
		_ = n.Close()
	}
}
