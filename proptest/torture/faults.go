//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/leased-project/leased/internal/testserver"
)

func (n *nemesis) workerFaults(workers []*worker) []fault {
	any := func(r *rand.Rand) *worker { return workers[r.IntN(len(workers))] }
	// Prefer a worker that holds a lock.
	holding := func(r *rand.Rand) *worker {
		v := any(r)
		for range 20 * len(workers) {
			if n.holding(v.spec.Name) {
				break
			}
			v = any(r)
			wait(context.Background(), time.Millisecond)
		}
		return v
	}
	return []fault{
		{1, func(ctx context.Context, r *rand.Rand) { // stopped for longer than its lease, or not
			v := holding(r)
			length := some(r, 100*time.Millisecond, 3*leaseTTL)
			n.pause(ctx, v.spec.Name, "worker paused", length, v.process.Pause, v.process.Resume)
		}},
		{1, func(_ context.Context, r *rand.Rand) {
			v := any(r)
			v.process.Kill()
			n.report(v.spec.Name, "worker killed")
			n.try(v.begin())
		}},
	}
}

func (n *nemesis) memberFaults() []fault {
	all := []fault{
		{30, func(ctx context.Context, r *rand.Rand) {
			m := n.member(ctx, r)
			m.process.Kill()
			n.report(m.who(), "member killed")
			wait(ctx, some(r, 0, 1500*time.Millisecond))
			n.back(ctx, r, m)
		}},
		{30, func(ctx context.Context, r *rand.Rand) {
			m := n.member(ctx, r)
			length := some(r, 100*time.Millisecond, 3*time.Second)
			n.pause(ctx, m.who(), "member paused", length, m.process.Pause, m.process.Resume)
		}},
		{5, func(ctx context.Context, r *rand.Rand) { // rolling restart
			for _, m := range n.world.members {
				if ctx.Err() != nil {
					return
				}
				n.report(m.who(), "member restarted")
				m.process.End(syscall.SIGTERM, stopLimit)
				n.back(ctx, r, m)
			}
		}},
	}
	if n.world.network.namespaces {
		all = append(all, fault{15, func(ctx context.Context, r *rand.Rand) { n.partition(ctx, r, true) }},
			fault{15, func(ctx context.Context, r *rand.Rand) { n.partition(ctx, r, false) }})
	}
	if n.tracer != "" {
		all = append(all,
			fault{4, func(ctx context.Context, r *rand.Rand) { n.disk(ctx, r, "disk EIO", "error=EIO") }},
			fault{4, func(ctx context.Context, r *rand.Rand) { n.disk(ctx, r, "disk full", "error=ENOSPC") }},
			fault{4, func(ctx context.Context, r *rand.Rand) { n.disk(ctx, r, "slow fsync", "delay_exit=200000") }})
	}
	return all
}

// reviveMembers restarts members that are down. A member exits by itself after a pause during a write to disk, for
// example.
func (c *checker) reviveMembers() {
	for _, m := range c.world.members {
		if runs, expected := m.process.Alive(); !runs && !expected {
			c.report(m.who(), "member ended by itself")
		}
		c.try(m.revive())
	}
}

// member restarts members that are down, and chooses one, mostly the leader.
func (n *nemesis) member(ctx context.Context, r *rand.Rand) *member {
	n.reviveMembers()
	if r.IntN(100) < 60 {
		if m := n.world.leader(ctx); m != nil {
			return m
		}
	}
	return n.world.members[r.IntN(len(n.world.members))]
}

// back restarts a member, and mostly waits until it knows a leader, so that a majority is
// up.
func (n *nemesis) back(ctx context.Context, r *rand.Rand, m *member) {
	n.try(m.revive())
	if r.IntN(8) > 0 {
		until(ctx, 5*time.Second, m.knowsLeader)
	}
}

// partition disconnects a member from the other members, from clients and Redis, or from
// one of them, in one or both directions.
func (n *nemesis) partition(ctx context.Context, r *rand.Rand, symmetric bool) {
	m := n.member(ctx, r)
	var others []int
	for _, other := range n.world.members {
		if other != m {
			others = append(others, other.number)
		}
	}
	switch r.IntN(4) {
	case 0:
		others = others[:1]
	case 1:
		others = []int{here}
	case 2:
		others = append(others, here)
	}
	note := "partition"
	if !symmetric {
		note = "one-way partition"
	}
	out := r.IntN(2) == 0
	n.report(m.who(), note)
	for _, other := range others {
		for _, way := range [][2]int{{m.number, other}, {other, m.number}} {
			if !symmetric && (way[0] == m.number) != out {
				continue
			}
			n.try(n.world.network.cut(way[0], way[1]))
		}
	}
	wait(ctx, some(r, 500*time.Millisecond, 4*time.Second))
	n.try(n.world.network.heal())
}

// disk makes a member's disk fail or slow for a while. A member whose disk fails ends by
// itself and is restarted.
func (n *nemesis) disk(ctx context.Context, r *rand.Rand, note, injection string) {
	m := n.member(ctx, r)
	const calls = "fsync,fdatasync"
	tracer := &testserver.Process{Name: "strace", Log: filepath.Join(n.world.config.Dir, "strace.log"),
		Args: []string{n.tracer, "-f", "-qq", "-o", "/dev/null", "-p", fmt.Sprint(m.process.Pid()), "-e", "trace=" + calls,
			"-e", "inject=" + calls + ":" + injection}}
	if !n.try(tracer.Start()) {
		return
	}
	n.report(m.who(), note)
	until(ctx, some(r, 1*time.Second, 4*time.Second), func() bool { return m.process.Pid() == 0 || tracer.Pid() == 0 })
	if tracer.Pid() == 0 { // mostly because the member has ended
		until(context.WithoutCancel(ctx), stopLimit, func() bool { return m.process.Pid() == 0 })
	}
	if m.process.Pid() != 0 && tracer.Pid() == 0 {
		n.fail(fmt.Errorf("strace detached from %s at once, so no disk fault was injected; its log is %s; allow ptrace, or "+
			"remove strace from PATH", m.who(), tracer.Log))
		return
	}
	tracer.End(syscall.SIGTERM, stopLimit) // it detaches from the member; strace has been seen to hang
	if m.process.Pid() == 0 {
		n.back(ctx, r, m)
	}
}

func (n *nemesis) redisFaults() []fault {
	any := func(r *rand.Rand) *redisNode { return n.world.redisNodes[r.IntN(len(n.world.redisNodes))] }
	all := []fault{
		{25, func(ctx context.Context, r *rand.Rand) {
			m := any(r)
			m.server.Kill()
			n.report(m.who(), "redis killed")
			if r.IntN(3) == 0 || !m.saved {
				m.saved = n.try(m.server.Save()) || m.saved
			}
			wait(ctx, some(r, 0, time.Second))
			n.revive(ctx, m)
		}},
		{25, func(ctx context.Context, r *rand.Rand) {
			m := any(r)
			n.pause(ctx, m.who(), "redis paused", some(r, 100*time.Millisecond, 2*leaseTTL), m.server.Pause, m.server.Resume)
		}},
		{15, func(ctx context.Context, r *rand.Rand) { n.empty(ctx, any(r)) }},
		{15, func(ctx context.Context, r *rand.Rand) { n.restoreOldFolder(ctx, any(r)) }},
		{4, func(ctx context.Context, _ *rand.Rand) { n.emptyAll(ctx) }},
	}
	if n.world.redisNodes[0].clock != "" {
		all = append(all, fault{25, func(ctx context.Context, r *rand.Rand) {
			m := any(r)
			n.report(m.who(), "redis clock offset")
			// A lock that is granted while the clock is ahead stays held for that
			// time after the repair if its holder is killed.
			by := some(r, time.Second, 15*time.Second)
			if r.IntN(2) == 0 {
				by = -3 * by
			}
			n.try(m.setClockOffset(by))
			wait(ctx, some(r, time.Second, 4*time.Second))
			n.try(m.setClockOffset(0))
		}})
	}
	return all
}

// storageFaults keep confirmed data, which gates rely on.
func (n *nemesis) storageFaults() []fault {
	return []fault{{1, func(ctx context.Context, _ *rand.Rand) {
		n.crash(ctx, n.world.database, storageName, "storage killed")
	}}}
}

// crash kills a backend of a PostgreSQL, which makes all of it recover from its log, and waits
// until it answers.
func (n *nemesis) crash(ctx context.Context, d *database, who, note string) {
	var gone func() bool
	err := retry(ctx, startLimit, func() (err error) { gone, err = d.crash(ctx); return err })
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		n.fail(fmt.Errorf("kill %s: %w", who, err))
		return
	}
	n.report(who, note)
	until(ctx, startLimit, gone)
	until(ctx, startLimit, func() bool { return d.answers(ctx) })
}

func (n *nemesis) revive(ctx context.Context, m *redisNode) {
	if err := m.revive(ctx); err != nil && ctx.Err() == nil { // else heal retries
		n.fail(err)
	}
}

// empty removes a node's data.
func (n *nemesis) empty(ctx context.Context, m *redisNode) {
	if n.try(m.server.Wipe()) {
		n.report(m.who(), "redis emptied")
		n.revive(ctx, m)
	}
}

// restoreOldFolder restarts a node with an older copy of its folder.
func (n *nemesis) restoreOldFolder(ctx context.Context, m *redisNode) {
	if m.saved && n.try(m.server.PutBack()) {
		n.report(m.who(), "redis restarted with old data")
		n.revive(ctx, m)
	}
}

// emptyAll removes the data of all nodes before it restarts the first.
func (n *nemesis) emptyAll(ctx context.Context) {
	for _, m := range n.world.redisNodes {
		if !n.try(m.server.Wipe()) {
			return
		}
	}
	n.report("redis", "all redis emptied")
	for _, m := range n.world.redisNodes {
		n.revive(ctx, m)
	}
}
