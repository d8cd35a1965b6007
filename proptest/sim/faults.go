package sim

import (
	"time"

	"github.com/leased-project/leased/proptest/property"
)

// inject injects a fault, and counts it if it had an effect. A fault that only prolongs
// another one is not counted.
func (w *World) inject(f Fault) {
	if w.healed {
		return
	}
	c := w.clients[f.Target%len(w.clients)]
	node := w.nodeProcess(f.Target)
	d := max(f.For, 10*time.Millisecond)
	done := true
	switch f.Kind {
	case PauseClient:
		w.pause(c.process, d, f.Kind.String())
		return // pause records it
	case PauseAtStep:
		c.armed[f.Step] = d
		return
	case PauseNode:
		w.pause(node, d, f.Kind.String())
		return
	case SuspendClient:
		c.clock.set(w.now, func(k *clock) { k.suspended = true })
		w.pause(c.process, d, f.Kind.String())
		w.after(d, func() { c.clock.set(w.now, func(k *clock) { k.suspended = false }) })
		return
	case CrashClient:
		done = w.crashClient(c, d)
	case CrashNode:
		done = w.crashNode(f.Target, d, keepsAll-keeps(f.Size%2))
	case EmptyNode:
		done = w.crashNode(f.Target, d, keepsNothing)
	case DriftClient, JumpClient, StopClient:
		done = w.clockFault(c.process, f, d)
	case DriftNode, JumpNode, StopNode:
		done = w.clockFault(node, f, d)
	case Misconfigure:
		if done = len(w.redises) > 0; done {
			s := w.redises[f.Target%len(w.redises)]
			node, done = s.process, w.misconfigure(s, f, d)
		}
	case LoseMessages, RepeatMessages, DelayMessages:
		done = w.disturb(f, d)
	case Depose, ChangeMembers, RestoreBackup:
		done = w.injectCluster(f, d)
	case MoveLocks, AbortMigration, ChangeFleet, EmptyFleet, CrashAtAction, StaleTopology:
		done = w.injectService(f, c, d)
	default:
		done = w.partition(f, c, node, d)
	}
	if done {
		w.emit(property.Event{Kind: property.Fault, Who: w.affected(f, c, node), Note: f.Kind.String()})
	}
}

// affected returns the name of the process that a fault concerns.
func (w *World) affected(f Fault, c *client, node *process) string {
	switch {
	case f.Kind <= StopClient || f.Kind == CutClient || f.Kind == CutStorage || f.Kind == StaleTopology:
		return c.name
	case f.Kind <= Isolate:
		return node.name
	case f.Kind == CutOneWay:
		return w.processes[f.Target%len(w.processes)].name
	}
	return ""
}

// nodes returns the number of nodes: replicas and Redis servers.
func (w *World) nodes() int { return w.plan.Nodes + w.plan.Redises }

func (w *World) nodeProcess(target int) *process { return w.processes[target%w.nodes()] }

// redisOf returns the Redis server of a process, or nil.
func (w *World) redisOf(p *process) *redisServer {
	i := p.number - (w.nodes() - len(w.redises))
	if i < 0 || i >= len(w.redises) {
		return nil
	}
	return w.redises[i]
}

func (w *World) crashClient(c *client, d time.Duration) bool {
	if c.down || w.adopted(c) && !w.healed { // it would take nodes that the service has left for new ones
		return false
	}
	if a := c.current; a != nil && !a.over && a.token != 0 { // a crashed client does not hold
		w.emit(property.Event{Kind: property.Ended, Who: c.name, Resource: a.name, Attempt: a.key, Token: a.token})
	}
	w.crash(c.process)
	c.down = true
	w.after(d, func() {
		c.down = false
		c.begin()
	})
	return true
}

// crashNode stops a node for a while. A replica loses its data only if the others are a
// majority, as the guarantees require.
func (w *World) crashNode(target int, d time.Duration, left keeps) bool {
	p := w.nodeProcess(target)
	if server := w.redisOf(p); server != nil {
		return w.crashRedis(server, d, left)
	}
	s, empty := w.cluster.slots[p.number], left == keepsNothing
	if p.down || empty && !w.cluster.expendable(s) {
		return false
	}
	w.crash(p)
	p.down = true
	if s.replica.leadership != nil {
		s.replica.endLeadership()
	}
	s.replica.role = follower
	if empty {
		s.replica.id = 0 // until a new replica is installed
	}
	w.after(d, func() {
		p.down = false
		if empty {
			w.cluster.install(s, s.nextID(), nil)
			return
		}
		s.replica.boot()
	})
	return true
}

// clockFault changes a clock. It reports whether a running process reads another time: a
// stopped clock does not drift.
func (w *World) clockFault(p *process, f Fault, d time.Duration) bool {
	stopped := p.clock.stopped
	switch f.Kind {
	case JumpClient, JumpNode:
		by := time.Duration(f.Size) * time.Millisecond
		p.clock.set(w.now, func(k *clock) { k.running, k.boot = k.running+by, k.boot+by })
		return by != 0 && !p.down
	case DriftClient, DriftNode:
		was := p.clock.ppm
		if was > maxDrift || was < -maxDrift {
			return false // it drifts already
		}
		p.clock.set(w.now, func(k *clock) { k.ppm = int64(f.Size) })
		w.after(d, func() { p.clock.set(w.now, func(k *clock) { k.ppm = was }) })
		return int64(f.Size) != was && !stopped && !p.down
	case StopClient, StopNode:
		p.clock.set(w.now, func(k *clock) { k.stopped = true })
		w.after(d, func() { p.clock.set(w.now, func(k *clock) { k.stopped = false }) })
	}
	return !stopped && !p.down
}

// disturb loses, repeats or delays messages for a while. It has no effect if all are lost
// already.
func (w *World) disturb(f Fault, d time.Duration) (worse bool) {
	percent := 1 + max(f.Size, 0)%60
	change := func(field *int) {
		worse = *field < 100 && w.net.loss < 100
		*field += percent
		w.after(d, func() { *field -= percent })
	}
	switch f.Kind {
	case LoseMessages:
		change(&w.net.loss)
	case RepeatMessages:
		change(&w.net.repeat)
	case DelayMessages:
		w.net.late = max(w.net.late, 2*d)
		change(&w.net.spike)
	}
	return worse
}

// talk reports whether one process sends messages to another: replicas to all nodes,
// clients to nodes and the storage, and back.
func (w *World) talk(from, to *process) bool {
	node := func(p *process) bool { return p.number < w.nodes() }
	client := func(p *process) bool { return !node(p) && p != w.store.process }
	switch {
	case from == to || from.down || to.down:
		return false
	case node(from) && node(to):
		return w.redisOf(from) == nil || w.redisOf(to) == nil
	}
	return client(from) != client(to)
}

// partition cuts connections for a while. It reports whether one of them was in use.
func (w *World) partition(f Fault, c *client, node *process, d time.Duration) (effective bool) {
	cut := func(a, b *process) {
		effective = effective || w.talk(a, b) && w.net.whole(a, b)
		w.net.cut(a, b)
		w.after(d, func() { w.net.mend(a, b) })
	}
	both := func(a, b *process) { cut(a, b); cut(b, a) }
	switch f.Kind {
	case Isolate:
		for _, p := range w.processes {
			if p != node {
				both(node, p)
			}
		}
	case CutOneWay:
		from, to := w.processes[f.Target%len(w.processes)], w.processes[f.Other%len(w.processes)]
		if from != to {
			cut(from, to)
		}
	case Split:
		for i, a := range w.processes {
			for j, b := range w.processes {
				if i < j && f.Size>>i&1 != f.Size>>j&1 {
					both(a, b)
				}
			}
		}
	case CutClient:
		for i := range w.nodes() {
			both(c.process, w.processes[i])
		}
	case CutStorage:
		both(c.process, w.store.process)
	}
	return effective
}

// injectCluster injects a fault of the Raft cluster.
func (w *World) injectCluster(f Fault, d time.Duration) bool {
	if w.cluster == nil {
		return false
	}
	switch f.Kind {
	case Depose:
		r := w.cluster.servingLeader()
		if r == nil {
			return false
		}
		// Another replica starts an election that the others accept. The leader may
		// learn of it late.
		for _, s := range w.cluster.slots {
			s.replica.leader = -1
			s.replica.heard = s.replica.clockNow() - 2*electionTimeout
		}
		o := w.cluster.slots[f.Other%len(w.cluster.slots)]
		w.net.cut(r.process, o.process)
		w.after(d, func() { w.net.mend(r.process, o.process) })
		if o.replica != r && !o.down && !o.paused {
			o.replica.campaign()
			return true
		}
		r.stepDown(r.term)
	case ChangeMembers:
		s := w.cluster.slots[f.Target%len(w.cluster.slots)]
		if s.out > w.now || len(w.cluster.slots) < 3 {
			return false
		}
		s.out, s.ordered = w.now+d+2*operatorPause, true
		return false // recorded when the operator has removed it
	case RestoreBackup:
		return w.cluster.restore(f.Size%2 == 0, f.Size%4 == 1)
	}
	return true
}

// injectService injects a fault of a Service.
func (w *World) injectService(f Fault, c *client, d time.Duration) bool {
	if w.plan.Setting != Service {
		return false
	}
	switch f.Kind {
	case EmptyFleet:
		return w.emptyFleet(d)
	case CrashAtAction:
		w.armCrash(f, d) // recorded when it happens
		return false
	case StaleTopology:
		if c.follow == nil {
			return false
		}
		was := c.follow.stale
		c.follow.stale = max(was, w.now+d)
		return was <= w.now && !c.down
	}
	w.change(f)
	return false
}

// heal repairs all faults, except that a fleet must do with a misconfigured server for a while. From here on there must
// be progress.
func (w *World) heal() {
	w.healed = true
	clear(w.net.cuts)
	w.net.loss, w.net.repeat, w.net.spike = 0, 0, 0
	for _, p := range w.processes {
		w.resume(p)
		p.clock.set(w.now, func(k *clock) { k.stopped, k.suspended = false, false })
		if k := p.clock.ppm; k > maxDrift || k < -maxDrift {
			p.clock.set(w.now, func(k *clock) { k.ppm = 0 })
		}
	}
	w.crashes = nil
	for _, s := range w.redises {
		if s.wrong != 0 && !w.spares(s) {
			w.putRight(s)
		}
	}
	for _, c := range w.clients {
		if w.adopted(c) {
			w.crashClient(c, 3*grace)
		}
		c.armed = [steps]time.Duration{}
		if c.follow != nil {
			c.follow.stale = 0
		}
	}
	if w.cluster != nil {
		for _, s := range w.cluster.slots {
			s.out = 0
		}
	}
	w.emit(property.Event{Kind: property.Healed})
}
