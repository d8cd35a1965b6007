package sim

import (
	"time"

	"github.com/leased-project/leased/proptest/promise"
)

// inject lets a fault happen, and counts it if it changed something. A fault
// that only makes another one longer is not counted.
func (w *World) inject(f Fault) {
	if w.healed {
		return
	}
	c := w.clients[f.Target%len(w.clients)]
	node := w.nodeParty(f.Target)
	d := max(f.For, 10*time.Millisecond)
	done := true
	switch f.What {
	case PauseClient:
		w.pause(c.party, d, f.What.String())
		return // it tells of itself
	case PauseAtStep:
		c.armed[f.Step] = d
		return
	case PauseNode:
		w.pause(node, d, f.What.String())
		return
	case SuspendClient:
		c.clock.set(w.now, func(k *clock) { k.suspended = true })
		w.pause(c.party, d, f.What.String())
		w.later(d, func() { c.clock.set(w.now, func(k *clock) { k.suspended = false }) })
		return
	case CrashClient:
		done = w.crashClient(c, d)
	case CrashNode:
		done = w.crashNode(f.Target, d, keepsAll-keeps(f.Size%2))
	case EmptyNode:
		done = w.crashNode(f.Target, d, keepsNothing)
	case DriftClient, JumpClient, StopClient:
		done = w.clockFault(c.party, f, d)
	case DriftNode, JumpNode, StopNode:
		done = w.clockFault(node, f, d)
	case LoseMessages, RepeatMessages, DelayMessages:
		done = w.disturb(f, d)
	case Depose, ChangeMembers, RestoreBackup:
		done = w.order(f, d)
	case MoveLocks, AbortMove, ChangeFleet, EmptyFleet, CrashAtAction, StaleTopology:
		done = w.orderService(f, c, d)
	default:
		done = w.part(f, c, node, d)
	}
	if done {
		w.tell(promise.Event{Kind: promise.Fault, Who: w.suspect(f, c, node), Note: f.What.String()})
	}
}

// suspect is whom a fault is about.
func (w *World) suspect(f Fault, c *client, node *party) string {
	switch {
	case f.What <= StopClient || f.What == CutClient || f.What == CutStorage || f.What == StaleTopology:
		return c.name
	case f.What <= Isolate:
		return node.name
	case f.What == CutOneWay:
		return w.parties[f.Target%len(w.parties)].name
	}
	return ""
}

// nodes is how many parties are nodes: of the service, or Redis servers.
func (w *World) nodes() int { return w.plan.Nodes + w.plan.Redises }

func (w *World) nodeParty(target int) *party { return w.parties[target%w.nodes()] }

// redisOf is the Redis server of a party, or nil.
func (w *World) redisOf(p *party) *redisServer {
	i := p.number - (w.nodes() - len(w.redises))
	if i < 0 || i >= len(w.redises) {
		return nil
	}
	return w.redises[i]
}

func (w *World) crashClient(c *client, d time.Duration) bool {
	if c.down {
		return false
	}
	if a := c.current; a != nil && !a.over && a.token != 0 { // it cannot believe anything any more
		w.tell(promise.Event{Kind: promise.Ended, Who: c.name, Resource: a.name, Attempt: a.key, Token: a.token})
	}
	w.crash(c.party)
	c.down = true
	w.later(d, func() {
		c.down = false
		c.begin()
	})
	return true
}

// crashNode stops a node for a while. A replica without its data comes back only
// if the others are enough: what is promised needs that.
func (w *World) crashNode(target int, d time.Duration, left keeps) bool {
	p := w.nodeParty(target)
	if server := w.redisOf(p); server != nil {
		return w.crashRedis(server, d, left)
	}
	s, empty := w.cluster.slots[p.number], left == keepsNothing
	if p.down || empty && !w.cluster.expendable(s) {
		return false
	}
	w.crash(p)
	p.down = true
	if s.replica.office != nil {
		s.replica.office.closeAll()
		s.replica.office = nil
	}
	s.replica.role = follower
	if empty {
		s.replica.id = 0 // nobody's, until it is installed anew
	}
	w.later(d, func() {
		p.down = false
		if empty {
			w.cluster.install(s, s.nextID(), nil)
			return
		}
		s.replica.boot()
	})
	return true
}

// clockFault reports whether somebody who is up reads another time for it: a
// clock that stands does not drift.
func (w *World) clockFault(p *party, f Fault, d time.Duration) bool {
	stood := p.clock.stopped
	switch f.What {
	case JumpClient, JumpNode:
		by := time.Duration(f.Size) * time.Millisecond
		p.clock.set(w.now, func(k *clock) { k.running, k.boot = k.running+by, k.boot+by })
		return by != 0 && !p.down
	case DriftClient, DriftNode:
		was := p.clock.ppm
		if was > maxHonestDrift || was < -maxHonestDrift {
			return false // one at a time
		}
		p.clock.set(w.now, func(k *clock) { k.ppm = int64(f.Size) })
		w.later(d, func() { p.clock.set(w.now, func(k *clock) { k.ppm = was }) })
		return int64(f.Size) != was && !stood && !p.down
	case StopClient, StopNode:
		p.clock.set(w.now, func(k *clock) { k.stopped = true })
		w.later(d, func() { p.clock.set(w.now, func(k *clock) { k.stopped = false }) })
	}
	return !stood && !p.down
}

// disturb makes all messages worse for a while. When all are lost it cannot get
// worse.
func (w *World) disturb(f Fault, d time.Duration) (worse bool) {
	percent := 1 + max(f.Size, 0)%60
	change := func(field *int) {
		worse = *field < 100 && w.net.loss < 100
		*field += percent
		w.later(d, func() { *field -= percent })
	}
	switch f.What {
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

// talk reports whether the first has messages for the second: all but a few are
// between a client and somebody else.
func (w *World) talk(from, to *party) bool {
	node := func(p *party) bool { return p.number < w.nodes() }
	client := func(p *party) bool { return !node(p) && p != w.store.party }
	switch {
	case from == to || from.down || to.down:
		return false
	case node(from) && node(to):
		return w.redisOf(from) == nil || w.redisOf(to) == nil
	}
	return client(from) != client(to)
}

// part cuts connections for a while, and reports whether one is in use and was
// whole.
func (w *World) part(f Fault, c *client, node *party, d time.Duration) (torn bool) {
	cut := func(a, b *party) {
		torn = torn || w.talk(a, b) && w.net.whole(a, b)
		w.net.cut(a, b)
		w.later(d, func() { w.net.mend(a, b) })
	}
	both := func(a, b *party) { cut(a, b); cut(b, a) }
	switch f.What {
	case Isolate:
		for _, p := range w.parties {
			if p != node {
				both(node, p)
			}
		}
	case CutOneWay:
		from, to := w.parties[f.Target%len(w.parties)], w.parties[f.Other%len(w.parties)]
		if from != to {
			cut(from, to)
		}
	case Split:
		for i, a := range w.parties {
			for j, b := range w.parties {
				if i < j && f.Size>>i&1 != f.Size>>j&1 {
					both(a, b)
				}
			}
		}
	case CutClient:
		for i := range w.nodes() {
			both(c.party, w.parties[i])
		}
	case CutStorage:
		both(c.party, w.store.party)
	}
	return torn
}

// order is what an operator does to the cluster.
func (w *World) order(f Fault, d time.Duration) bool {
	if w.cluster == nil {
		return false
	}
	switch f.What {
	case Depose:
		r := w.cluster.leads()
		if r == nil {
			return false
		}
		// Someone else stands for election, and the others listen. The leader may
		// learn of it late.
		for _, s := range w.cluster.slots {
			s.replica.leader = -1
			s.replica.heard = s.replica.clockNow() - 2*electionTimeout
		}
		o := w.cluster.slots[f.Other%len(w.cluster.slots)]
		w.net.cut(r.party, o.party)
		w.later(d, func() { w.net.mend(r.party, o.party) })
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
		return false // it is told of when the operator has done it
	case RestoreBackup:
		return w.cluster.restore(f.Size%2 == 0)
	}
	return true
}

// orderService is what happens to a Service alone.
func (w *World) orderService(f Fault, c *client, d time.Duration) bool {
	if w.plan.Setting != Service {
		return false
	}
	switch f.What {
	case EmptyFleet:
		return w.emptyFleet(d)
	case CrashAtAction:
		w.armCrash(f, d) // it is told of when it happens
		return false
	case StaleTopology:
		r := c.service.(*router)
		was := r.stale
		r.stale = max(was, w.now+d)
		return was <= w.now && !c.down
	}
	w.change(f)
	return false
}

// heal ends all faults. From here on there must be progress.
func (w *World) heal() {
	w.healed = true
	clear(w.net.cuts)
	w.net.loss, w.net.repeat, w.net.spike = 0, 0, 0
	for _, p := range w.parties {
		w.resume(p)
		p.clock.set(w.now, func(k *clock) { k.stopped, k.suspended = false, false })
		if k := p.clock.ppm; k > maxHonestDrift || k < -maxHonestDrift {
			p.clock.set(w.now, func(k *clock) { k.ppm = 0 })
		}
	}
	w.crashes = nil
	for _, c := range w.clients {
		c.armed = [steps]time.Duration{}
		if r, ok := c.service.(*router); ok {
			r.stale = 0
		}
	}
	if w.cluster != nil {
		for _, s := range w.cluster.slots {
			s.out = 0
		}
	}
	w.tell(promise.Event{Kind: promise.Healed})
}
