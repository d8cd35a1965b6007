package virtual

import (
	"bytes"
	"context"
	"time"

	"github.com/leased-project/leased/raftstore"
)

// nodeFaults are what can happen to a cluster.
var nodeFaults = []string{"isolate-leader", "isolate", "mute", "deaf", "split", "slow-network", "crash", "crash-all",
	"crash-empty", "slow-disk", "transfer", "leave"}

// ways are the directions between one node and all others.
func (c *cluster) ways(name string, out, in bool) (ways []way) {
	for _, m := range c.members {
		if m.name == name {
			continue
		}
		if out {
			ways = append(ways, way{name, m.name})
		}
		if in {
			ways = append(ways, way{m.name, name})
		}
	}
	return ways
}

// split are the ways between two parts of the cluster.
func (c *cluster) split(mask int) (ways []way) {
	for i, a := range c.members {
		for j, b := range c.members {
			if mask>>i&1 != mask>>j&1 {
				ways = append(ways, way{a.name, b.name})
			}
		}
	}
	return ways
}

// strike makes something happen to the cluster, and returns when it is over.
func (c *cluster) strike(ctx context.Context, f fault) {
	m := c.members[f.target%len(c.members)]
	if f.kind == "isolate-leader" || f.kind == "transfer" {
		if leader := c.leader(); leader != nil {
			m = c.named(leader.ID())
		}
	}
	c.applied()
	switch f.kind {
	case "isolate", "isolate-leader":
		c.sever(f, m, c.ways(m.name, true, true))
	case "mute": // it hears, and nobody hears it
		c.sever(f, m, c.ways(m.name, true, false))
	case "deaf":
		c.sever(f, m, c.ways(m.name, false, true))
	case "split":
		c.sever(f, m, c.split(f.dice))
	case "slow-network":
		mend, worse := c.network.hamper(c.ways(m.name, true, true), time.Duration(f.dice)*8*time.Millisecond, f.dice%60)
		c.story.count(f, m.name, worse && f.lasts > 0)
		wait(ctx, f.lasts)
		mend()
	default:
		c.strikeMember(ctx, m, f)
	}
	c.applied()
}

func (c *cluster) sever(f fault, m *member, ways []way) {
	mend, torn := c.network.sever(ways)
	c.story.count(f, m.name, torn && f.lasts > 0)
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

// strikeMember is for faults that open and close nodes: one at a time for each.
func (c *cluster) strikeMember(ctx context.Context, m *member, f fault) {
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
	if f.kind == "leave" || f.kind == "crash-empty" { // a majority keeps its data, or nothing is promised
		c.leaving <- struct{}{}
		defer func() { <-c.leaving }()
		c.must(c.settle(ctx, m))
	}
	c.story.count(f, m.name, m.suffers(f))
	switch f.kind {
	case "crash", "crash-all":
		for _, one := range struck {
			c.crash(one)
		}
		wait(ctx, f.lasts)
		for _, one := range struck {
			c.must(c.open(one))
		}
	case "slow-disk": // beyond the node's own deadline it ends
		m.disk.setSlow(time.Duration(f.dice*f.dice) * time.Millisecond)
		wait(ctx, f.lasts)
		m.disk.setSlow(0)
		wait(ctx, 2*raftstore.DefaultStoreDeadline) // a write that began late may still end the node
	case "transfer": // not beside a crash: the engine then never answers (hashicorp/raft 498), which a bubble cannot bear
		_ = m.node.Transfer(ctx, "") // if it fails it leads on, or another does
	case "crash-empty": // as it happens: it is back on an empty disk before anyone knows
		c.crash(m)
		wait(ctx, f.lasts)
		c.reset(ctx, m)
	case "leave": // it is stopped then, and its folder emptied
		c.must(c.remove(ctx, m))
		wait(ctx, f.lasts)
		c.reset(ctx, m)
	}
}

// suffers reports whether a fault that opens or closes nodes changes anything:
// all do but a disk that is no slower, and a leader that does not lead.
func (m *member) suffers(f fault) bool {
	switch f.kind {
	case "slow-disk":
		return f.dice > 0 && f.lasts > 0
	case "transfer":
		return m.node.Leads()
	}
	return true
}

// must tells of something that has to work in the end.
func (c *cluster) must(err error) {
	if err != nil {
		c.story.broken("%v", err)
	}
}

// supervise opens nodes again that have ended by themselves, until ctx ends, and
// replaces those that the engine has brought into a loop.
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

// loopSnapshots is how many snapshots a second are no coincidence.
const loopSnapshots = 50

// replace is what an operator does with a node that is sent the same snapshot
// again and again: the engine keeps an entry of a former leader right behind it,
// and refuses what comes instead (hashicorp/raft 697).
func (c *cluster) replace(ctx context.Context, m *member, fault string) {
	select {
	case c.leaving <- struct{}{}:
		defer func() { <-c.leaving }()
	default:
		return // another is out: later
	}
	c.story.fault(fault, m.name)
	c.reset(ctx, m)
}

// reset empties a member that is down or of no use, and brings it back.
func (c *cluster) reset(ctx context.Context, m *member) {
	c.crash(m)
	m.disk = newDisk()
	c.must(c.open(m))
	c.must(c.remove(ctx, m))
	c.must(c.join(ctx, m))
}

// restore takes a snapshot, lets time pass, and puts the cluster back to it.
func (c *cluster) restore(ctx context.Context, after time.Duration) {
	var saved bytes.Buffer
	c.must(c.insist(ctx, func(leader *raftstore.Node) error {
		saved.Reset()
		_, err := leader.SaveSnapshot(ctx, &saved)
		return err
	}))
	wait(ctx, after)
	c.story.fault("restore", "cluster")
	c.must(c.insist(ctx, func(leader *raftstore.Node) error {
		c.witness.expectRestore(leader.ID())
		_, err := leader.RestoreSnapshot(ctx, bytes.NewReader(saved.Bytes()))
		c.witness.expectRestore("")
		return err
	}))
}
