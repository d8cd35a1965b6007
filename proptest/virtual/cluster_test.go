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

// patience ends a run that hangs. It is virtual, and no measure of speed.
const patience = 10 * time.Minute

// member is a place for a node: its disk stays when the node crashes.
type member struct {
	name string
	busy chan struct{} // held by the one fault that changes disk and node
	disk *disk
	wire *wire
	node *raftstore.Node // nil while it is down
}

// cluster is nodes of the product on an in-memory network.
type cluster struct {
	story   *story
	witness *witness
	network *network
	diary   *diary
	config  raftstore.Config

	leaving chan struct{} // held while a member is out of the cluster

	mu      sync.Mutex
	members []*member
	view    *view
	work    sync.WaitGroup
}

// view is the nodes that clients can ask.
type view struct {
	nodes   []*raftstore.Node
	backend *raftstore.Backend
}

// startCluster starts a cluster of some size: one node begins, the others join.
func startCluster(s *story, size int, seed uint64) (*cluster, error) {
	d := &diary{}
	c := &cluster{story: s, witness: newWitness(s), network: newNetwork(seed), diary: d, leaving: make(chan struct{}, 1),
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, m := range c.members[1:] {
		if err := c.join(ctx, m); err != nil {
			return c, err
		}
	}
	return c, nil
}

// open starts the node of a member, on what its disk has. One that ends at once,
// because its disk is too slow, is started again.
func (c *cluster) open(m *member) error {
	for range 100 {
		node, wire, err := c.start(m)
		if err != nil {
			return fmt.Errorf("open %s: %w", m.name, err)
		}
		if node != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			m.node, m.wire = node, wire
			return c.look()
		}
		c.network.unplug(wire)
		wait(context.Background(), time.Second)
	}
	return fmt.Errorf("open %s: it never starts", m.name)
}

// start makes one try. The node is nil if it ended, and with it the goroutine
// that started it, as a process would.
func (c *cluster) start(m *member) (*raftstore.Node, *wire, error) {
	config := c.config
	config.ID, config.Storage, config.Observer = m.name, m.disk.open(), &replica{c.witness, m.name}
	wire := c.network.plug(m.name)
	config.Transport = wire
	config.Fatal = func(err error) {
		var diverged *raftreplica.DivergenceError
		if errors.As(err, &diverged) {
			c.story.broken("%v", err)
		}
		c.network.unplug(wire)
	}
	var node *raftstore.Node
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		node, err = raftstore.Open(config)
	}()
	<-ended
	return node, wire, err
}

// look makes a new view. The caller holds mu.
func (c *cluster) look() error {
	v := &view{}
	for _, m := range c.members {
		if m.node != nil {
			v.nodes = append(v.nodes, m.node)
		}
	}
	if len(v.nodes) == 0 {
		return nil // clients go on with the old ones, in vain
	}
	var err error
	v.backend, err = raftstore.NewBackend(v.nodes...) // as in the server: clients try again
	c.view = v
	return err
}

// nodes are those that are up.
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

// leader is a node that leads, nil if there is none.
func (c *cluster) leader() *raftstore.Node {
	nodes := c.nodes()
	if i := slices.IndexFunc(nodes, (*raftstore.Node).Leads); i >= 0 {
		return nodes[i]
	}
	return nil
}

// crash ends a node as a loss of power does: nothing more leaves it or reaches
// its disk.
func (c *cluster) crash(m *member) {
	c.mu.Lock()
	node := m.node
	m.node = nil
	c.mu.Unlock()
	if node == nil {
		return
	}
	c.network.unplug(m.wire)
	m.disk.crash()
	_ = node.Close() // what it would still write is lost
}

// revive opens a node again that has ended by itself. The caller holds m.
func (c *cluster) revive(m *member) error {
	if m.node.Failure() == nil {
		return nil
	}
	c.crash(m)
	return c.open(m)
}

// join brings a member into the cluster, again and again until it is in.
func (c *cluster) join(ctx context.Context, m *member) error {
	return c.insist(ctx, func(leader *raftstore.Node) error {
		if err := c.revive(m); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := m.node.Join(limited, leader)
		if errors.Is(err, engine.ErrInvalid) { // it has begun to join under a leader that was deposed: once more
			c.crash(m)
			m.disk = newDisk()
			return errors.Join(c.open(m), leader.Remove(limited, m.name), err)
		}
		return err
	})
}

// remove takes a member out of the cluster.
func (c *cluster) remove(ctx context.Context, m *member) error {
	return c.insist(ctx, func(leader *raftstore.Node) error {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return leader.Remove(limited, m.name)
	})
}

// settle waits until every node has what is committed, and knows that all of
// them vote. The engine refuses
// to elect a node that the voter does not know as one yet: if the others that
// know of a promotion lose their data before all do, nobody can ever be elected.
// The caller holds mine.
func (c *cluster) settle(ctx context.Context, mine *member) error {
	for ctx.Err() == nil {
		if err := c.revive(mine); err != nil {
			return err
		}
		settled, commit := 0, uint64(0)
		if leader := c.leader(); leader != nil {
			commit = leader.Status().Commit
		}
		for _, n := range c.nodes() {
			members := n.Members()
			if commit > 0 && n.Status().Applied >= commit && len(members) == len(c.members) && !slices.ContainsFunc(members, func(m raftstore.Member) bool { return !m.Voter }) {
				settled++
			}
		}
		if settled == len(c.members) {
			return nil
		}
		wait(ctx, 200*time.Millisecond)
	}
	return fmt.Errorf("not all nodes know of each other by the end: %w", context.Cause(ctx))
}

// insist is an operator who tries until it works.
func (c *cluster) insist(ctx context.Context, do func(leader *raftstore.Node) error) error {
	err := errors.New("no leader")
	for ctx.Err() == nil {
		if leader := c.leader(); leader != nil {
			if err = do(leader); err == nil {
				return nil
			}
		}
		wait(ctx, 200*time.Millisecond)
	}
	return fmt.Errorf("not done by the end: %w (last: %w)", context.Cause(ctx), err)
}

// agree waits until all nodes stand at one entry, and tells their histories. One
// that stays behind for minutes after the last fault is replaced, and said to be.
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
			return fmt.Errorf("the nodes stand at %v\n%s", indexes, c.state())
		}
		if tries == 3000 { // five minutes
			c.leaveBehind(ctx, slices.Min(indexes))
		}
		wait(ctx, 100*time.Millisecond)
	}
	c.applied()
	return nil
}

// leaveBehind replaces the nodes that stand where others do not.
func (c *cluster) leaveBehind(ctx context.Context, index uint64) {
	fmt.Fprintf(os.Stderr, "a node stays at %d, and nobody knows why:\n%s", index, c.state())
	for _, n := range c.nodes() {
		if m := c.named(n.ID()); n.Status().Chain.Index == index {
			m.busy <- struct{}{}
			c.replace(ctx, m, "left-behind")
			<-m.busy
		}
	}
}

// applied tells how far every node is.
func (c *cluster) applied() {
	for _, n := range c.nodes() {
		c.witness.applied(n)
	}
}

// close ends all nodes.
func (c *cluster) close() {
	c.work.Wait()
	for _, n := range c.nodes() {
		_ = n.Close()
	}
}
