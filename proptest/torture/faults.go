//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"time"
)

func (n *nemesis) workerFaults(workers []*worker) []fault {
	any := func(r *rand.Rand) *worker { return workers[r.IntN(len(workers))] }
	// Prefer a worker that holds a lock.
	holding := func(r *rand.Rand) *worker {
		v := any(r)
		for range 20 * len(workers) {
			if n.holds(v.spec.Name) {
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
			n.paused(v.spec.Name, "worker paused")
			v.process.signal(syscall.SIGSTOP)
			wait(ctx, some(r, 100*time.Millisecond, 3*leaseTTL))
			n.resumed(v.spec.Name)
			v.process.signal(syscall.SIGCONT)
		}},
		{1, func(_ context.Context, r *rand.Rand) {
			v := any(r)
			v.process.kill()
			n.report(v.spec.Name, "worker killed")
			if err := v.begin(); err != nil {
				n.wrong(err)
			}
		}},
	}
}

func (n *nemesis) memberFaults() []fault {
	all := []fault{
		{30, func(ctx context.Context, r *rand.Rand) {
			m := n.member(ctx, r)
			m.process.kill()
			n.report(m.who(), "member killed")
			wait(ctx, some(r, 0, 1500*time.Millisecond))
			n.back(ctx, r, m)
		}},
		{30, func(ctx context.Context, r *rand.Rand) {
			m := n.member(ctx, r)
			n.paused(m.who(), "member paused")
			m.process.signal(syscall.SIGSTOP)
			wait(ctx, some(r, 100*time.Millisecond, 3*time.Second))
			n.resumed(m.who())
			m.process.signal(syscall.SIGCONT)
		}},
		{5, func(ctx context.Context, r *rand.Rand) { // rolling restart
			for _, m := range n.world.members {
				if ctx.Err() != nil {
					return
				}
				n.report(m.who(), "member restarted")
				m.process.end(syscall.SIGTERM, stopLimit)
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

// member chooses a member, mostly the leader. It first restarts members that ended by
// themselves, as after a pause during a write to disk.
func (n *nemesis) member(ctx context.Context, r *rand.Rand) *member {
	for _, m := range n.world.members {
		if runs, expected := m.process.alive(); !runs {
			if !expected {
				n.report(m.who(), "member ended by itself")
			}
			n.start(m)
		}
	}
	if r.IntN(100) < 60 {
		if m := n.world.leader(ctx); m != nil {
			return m
		}
	}
	return n.world.members[r.IntN(len(n.world.members))]
}

func (n *nemesis) start(m *member) {
	if err := m.revive(); err != nil {
		n.wrong(err)
	}
}

// back restarts a member, and mostly waits until it knows a leader, so that a majority is
// up.
func (n *nemesis) back(ctx context.Context, r *rand.Rand, m *member) {
	n.start(m)
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
			if err := n.world.network.cut(way[0], way[1]); err != nil {
				n.wrong(err)
			}
		}
	}
	wait(ctx, some(r, 500*time.Millisecond, 4*time.Second))
	if err := n.world.network.heal(); err != nil {
		n.wrong(err)
	}
}

// disk makes a member's disk fail or slow for a while. A member whose disk fails ends by
// itself and is restarted.
func (n *nemesis) disk(ctx context.Context, r *rand.Rand, note, injection string) {
	m := n.member(ctx, r)
	const calls = "fsync,fdatasync"
	tracer := exec.Command(n.tracer, "-f", "-qq", "-o", "/dev/null", "-p", fmt.Sprint(m.process.pid()), "-e", "trace="+calls, "-e", "inject="+calls+":"+injection)
	tracer.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := tracer.Start(); err != nil {
		n.wrong(err)
		return
	}
	n.report(m.who(), note)
	ended := make(chan error, 1)
	go func() { ended <- tracer.Wait() }()
	until(ctx, some(r, 1*time.Second, 4*time.Second), func() bool { runs, _ := m.process.alive(); return !runs || len(ended) > 0 })
	runs, _ := m.process.alive()
	if runs && len(ended) > 0 {
		n.wrong(fmt.Errorf("strace detached from %s at once, so no disk fault was injected: %w; allow ptrace, or remove strace from PATH", m.who(), <-ended))
		return
	}
	_ = tracer.Process.Signal(syscall.SIGTERM) // it detaches from the member
	<-ended
	if runs, _ := m.process.alive(); !runs {
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
				n.save(m)
			}
			wait(ctx, some(r, 0, time.Second))
			n.revive(ctx, m)
		}},
		{25, func(ctx context.Context, r *rand.Rand) {
			m := any(r)
			n.paused(m.who(), "redis paused")
			m.server.Pause()
			wait(ctx, some(r, 100*time.Millisecond, 2*leaseTTL))
			n.resumed(m.who())
			m.server.Resume()
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
			n.clock(m, by)
			wait(ctx, some(r, time.Second, 4*time.Second))
			n.clock(m, 0)
		}})
	}
	return all
}

// storageFaults keep confirmed data, which gates rely on.
func (n *nemesis) storageFaults() []fault {
	return []fault{{1, func(ctx context.Context, _ *rand.Rand) {
		d := n.world.database
		var gone func() bool
		err := retry(ctx, func() (err error) { gone, err = d.crash(ctx); return err })
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.wrong(fmt.Errorf("kill %s: %w", storageName, err))
			return
		}
		n.report(storageName, "storage killed")
		until(ctx, startLimit, gone)
		until(ctx, startLimit, func() bool { return d.answers(ctx) })
	}}}
}

func (n *nemesis) clock(m *redisNode, by time.Duration) {
	if err := m.setClockOffset(by); err != nil {
		n.wrong(err)
	}
}

func (n *nemesis) revive(ctx context.Context, m *redisNode) {
	if err := m.revive(ctx); err != nil && ctx.Err() == nil { // else heal retries
		n.wrong(err)
	}
}

// save copies a killed node's folder.
func (n *nemesis) save(m *redisNode) {
	if err := m.server.Save(); err != nil {
		n.wrong(err)
		return
	}
	m.saved = true
}

// empty removes a node's data.
func (n *nemesis) empty(ctx context.Context, m *redisNode) {
	if err := m.server.Wipe(); err != nil {
		n.wrong(err)
		return
	}
	n.report(m.who(), "redis emptied")
	n.revive(ctx, m)
}

// restoreOldFolder restarts a node with an older copy of its folder.
func (n *nemesis) restoreOldFolder(ctx context.Context, m *redisNode) {
	if !m.saved {
		return
	}
	if err := m.server.PutBack(); err != nil {
		n.wrong(err)
		return
	}
	n.report(m.who(), "redis restarted with old data")
	n.revive(ctx, m)
}

// emptyAll removes the data of all nodes before it restarts the first.
func (n *nemesis) emptyAll(ctx context.Context) {
	for _, m := range n.world.redisNodes {
		if err := m.server.Wipe(); err != nil {
			n.wrong(err)
			return
		}
	}
	n.report("redis", "all redis emptied")
	for _, m := range n.world.redisNodes {
		n.revive(ctx, m)
	}
}
