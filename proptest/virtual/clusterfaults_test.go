package virtual

import (
	"bytes"
	"context"
	"time"

	"github.com/leased-project/leased/raftstore"
)

// nodeFaults are the faults of a cluster.
var nodeFaults = []string{"isolate-leader", "isolate", "no-outbound", "no-inbound", "split", "slow-network", "crash",
	"crash-all",
	"crash-empty", "slow-disk", "transfer", "leave"}

// links returns the links between one node and all others.
func (c *cluster) links(name string, out, in bool) (links []link) {
	for _, m := range c.members {
		if m.name == name {
			continue
		}
		if out {
			links = append(links, link{name, m.name})
		}
		if in {
			links = append(links, link{m.name, name})
		}
	}
	return links
}

// split returns the links between two parts of the cluster.
func (c *cluster) split(mask int) (links []link) {
	for i, a := range c.members {
		for j, b := range c.members {
			if mask>>i&1 != mask>>j&1 {
				links = append(links, link{a.name, b.name})
			}
		}
	}
	return links
}

// inject injects a fault into the cluster, and returns when it is over.
func (c *cluster) inject(ctx context.Context, f fault) {
	m := c.members[f.target%len(c.members)]
	if f.kind == "isolate-leader" || f.kind == "transfer" {
		if leader := c.leader(); leader != nil {
			m = c.named(leader.ID())
		}
	}
	c.applied()
	switch f.kind {
	case "isolate", "isolate-leader":
		c.cutLinks(f, m, c.links(m.name, true, true))
	case "no-outbound":
		c.cutLinks(f, m, c.links(m.name, true, false))
	case "no-inbound":
		c.cutLinks(f, m, c.links(m.name, false, true))
	case "split":
		c.cutLinks(f, m, c.split(f.random))
	case "slow-network":
		mend, worse := c.network.degrade(c.links(m.name, true, true), time.Duration(f.random)*8*time.Millisecond, f.random%60)
		c.history.count(f, m.name, worse && f.lasts > 0)
		wait(ctx, f.lasts)
		mend()
	default:
		c.injectMember(ctx, m, f)
	}
	c.applied()
}

func (c *cluster) cutLinks(f fault, m *member, links []link) {
	mend, effective := c.network.cutLinks(links)
	c.history.count(f, m.name, effective && f.lasts > 0)
	wait(context.Background(), f.lasts)
	mend()
}

func (c *cluster) named(name string) *member {
	for _, m := range c.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// injectMember injects a fault that opens and closes nodes, one at a time per node.
func (c *cluster) injectMember(ctx context.Context, m *member, f fault) {
	var struck []*member
	for _, one := range c.members {
		if one != m && f.kind != "crash-all" {
			continue
		}
		select {
		case one.busy <- struct{}{}:
			defer func() { <-one.busy }()
			struck = append(struck, one)
		default:
		}
	}
	if len(struck) == 0 {
		return
	}
	if f.kind == "leave" || f.kind == "crash-empty" { // a majority must keep its data
		c.leaving <- struct{}{}
		defer func() { <-c.leaving }()
		c.must(c.waitForVoters(ctx, m))
	}
	c.history.count(f, m.name, m.suffers(f))
	switch f.kind {
	case "crash", "crash-all":
		for _, one := range struck {
			c.crash(one)
		}
		wait(ctx, f.lasts)
		for _, one := range struck {
			c.must(c.open(one))
		}
	case "slow-disk": // the node ends when a write exceeds its deadline
		m.disk.setSlow(time.Duration(f.random*f.random) * time.Millisecond)
		wait(ctx, f.lasts)
		m.disk.setSlow(0)
		wait(ctx, 2*raftstore.DefaultStoreDeadline) // a late write may still end the node
	case "transfer": // not during a crash: the Raft library may never answer (hashicorp/raft 498)
		_ = m.node.Transfer(ctx, "") // after a failure this or another node leads
	case "crash-empty": // it restarts with an empty disk before it is removed
		c.crash(m)
		wait(ctx, f.lasts)
		c.reset(ctx, m)
	case "leave": // it is removed, then its disk is emptied
		c.must(c.remove(ctx, m))
		wait(ctx, f.lasts)
		c.reset(ctx, m)
	}
}

// suffers reports whether a fault has an effect: not a disk that is no slower, nor a
// transfer from a node that does not lead.
func (m *member) suffers(f fault) bool {
	switch f.kind {
	case "slow-disk":
		return f.random > 0 && f.lasts > 0
	case "transfer":
		return m.node.Leads()
	}
	return true
}

// must records the failure of an operation that has to succeed.
func (c *cluster) must(err error) {
	if err != nil {
		c.history.broken("%v", err)
	}
}

// supervise restarts nodes that ended by themselves, and replaces nodes in a snapshot
// loop, until ctx ends.
func (c *cluster) supervise(ctx context.Context) {
	made := map[*disk]int{}
	for ctx.Err() == nil {
		wait(ctx, time.Second)
		for _, m := range c.members {
			select {
			case m.busy <- struct{}{}:
			default:
				continue
			}
			n := m.disk.snapshots.count()
			loops := n-made[m.disk] > loopSnapshots
			made[m.disk] = n
			switch {
			case m.node != nil && m.node.Failure() != nil:
				c.must(c.revive(m))
			case m.node != nil && loops:
				c.work.Go(func() {
					c.replace(ctx, m, "snapshot-loop")
					<-m.busy
				})
				continue
			}
			<-m.busy
		}
	}
}

// loopSnapshots is the number of snapshots per second that indicates a loop.
const loopSnapshots = 50

// replace replaces a node, like an operator. A node may receive the same snapshot forever,
// because the library keeps an entry of a former leader behind it and refuses the next one
// (hashicorp/raft 697).
func (c *cluster) replace(ctx context.Context, m *member, fault string) {
	select {
	case c.leaving <- struct{}{}:
		defer func() { <-c.leaving }()
	default:
		return // another member is removed: retry later
	}
	c.history.fault(fault, m.name)
	c.reset(ctx, m)
}

// reset restarts a member with an empty disk and joins it again.
func (c *cluster) reset(ctx context.Context, m *member) {
	c.crash(m)
	m.disk = newDisk()
	c.must(c.open(m))
	c.must(c.remove(ctx, m))
	c.must(c.join(ctx, m))
}

// restore saves a snapshot, waits, and restores it.
func (c *cluster) restore(ctx context.Context, after time.Duration) {
	var saved bytes.Buffer
	c.must(c.retryOnLeader(ctx, func(leader *raftstore.Node) error {
		saved.Reset()
		_, err := leader.SaveSnapshot(ctx, &saved)
		return err
	}))
	wait(ctx, after)
	c.history.fault("restore", "cluster")
	c.must(c.retryOnLeader(ctx, func(leader *raftstore.Node) error {
		c.logObserver.expectRestore(leader.ID())
		_, err := leader.RestoreSnapshot(ctx, bytes.NewReader(saved.Bytes()))
		c.logObserver.expectRestore("")
		return err
	}))
}
