package sim

import (
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// setUp commits the first policies: one lock has a lock-delay, and in a Service all others start in efficiency mode.
func (c *cluster) setUp(commands []machine.Command) {
	if len(commands) == 0 {
		c.complete = true
		return
	}
	again := func(rest []machine.Command) { c.w.after(100*time.Millisecond, func() { c.setUp(rest) }) }
	r := c.runningLeader()
	if r == nil {
		again(commands)
		return
	}
	r.propose(commands[0], func(a answer) {
		if a.state == served {
			commands = commands[1:]
		}
		again(commands)
	})
}

// initialCommands returns the commands of setUp.
func (w *World) initialCommands() []machine.Command {
	var list []machine.Command
	if w.plan.Setting == Service {
		list = append(list, &machine.SetPolicy{Policy: engine.Policy{Prefix: "lock/", Mode: engine.Efficiency}})
	}
	return append(list, &machine.SetPolicy{Policy: engine.Policy{Prefix: string(w.locks[0]), Mode: engine.Correctness,
		LockDelay: w.plan.TTL / 4}})
}

// command commits a change, which counts as a fault once it took effect.
func (w *World) command(kind FaultKind, c machine.Command) {
	r := w.cluster.runningLeader()
	before := r.machine.Version()
	r.propose(c, func(a answer) {
		if a.state == served && a.result.Code == machine.Done && a.result.Version != before {
			w.emit(property.Event{Kind: property.Fault, Who: r.name, Note: kind.String()})
		}
	})
}

// change is a change of modes or fleet by the operator of a Service.
func (w *World) change(f Fault) {
	r := w.cluster.runningLeader()
	if r == nil || w.plan.Outsider && !w.cluster.log.adopted {
		return // nothing may use the locks in correctness mode before that
	}
	now := f.Size&1 != 0
	switch f.Kind {
	case MoveLocks:
		w.moveLocks(r.machine, f, now)
	case AbortMigration:
		if moves := r.machine.Migrations(); len(moves) > 0 {
			w.command(f.Kind, &machine.AbortMigration{Prefix: moves[f.Target%len(moves)].Prefix})
		}
	case ChangeFleet:
		size := min([]int{1, 3, 5}[f.Target%3], (len(w.redises)-1)/2*2+1)
		var servers []*redisServer
		for i := range size {
			servers = append(servers, w.redises[(f.Other+i)%len(w.redises)])
		}
		w.command(f.Kind, &machine.SetFleet{Fleet: w.fleetOf(servers...), Now: now})
	}
}

// moveLocks migrates all locks, or one, by a new policy or by deleting one.
func (w *World) moveLocks(m *machine.Machine, f Fault, now bool) {
	prefix := "lock/"
	if f.Size&2 != 0 {
		prefix = string(w.locks[f.Target%len(w.locks)])
	}
	all, _ := m.Policies()
	has := slices.ContainsFunc(all.All(), func(p engine.Policy) bool { return p.Prefix == prefix })
	if has && f.Size&12 == 0 {
		w.command(f.Kind, &machine.DeletePolicy{Prefix: prefix, Now: now})
		return
	}
	p := engine.Policy{Prefix: prefix, Mode: engine.Efficiency}
	if mode, _ := m.Topology().ModeOf(fencing.Resource(prefix)); mode == engine.Efficiency {
		p.Mode = engine.Correctness
	}
	w.command(f.Kind, &machine.SetPolicy{Policy: p, Now: now})
}

// emptyFleet deletes the data of all Redis servers of the fleet at once.
func (w *World) emptyFleet(d time.Duration) (done bool) {
	r := w.cluster.servingLeader()
	if r == nil {
		return false
	}
	for _, s := range w.serversOf(r.machine.Efficiency().Fleet) {
		done = w.crashRedis(s, d, keepsNothing) || done
	}
	return done
}

// crashing is a crash of the leader before or after an action of its keeper.
type crashing struct {
	kind  fleet.Kind
	after bool
	lasts time.Duration
}

// armCrash schedules a crash of the leader at its next action of a kind.
func (w *World) armCrash(f Fault, d time.Duration) {
	kinds := int(fleet.Initialise) + 1
	w.crashes = append(w.crashes, crashing{kind: fleet.Kind(f.Size % kinds), after: f.Size/kinds%2 == 0, lasts: d})
}

// crashAtAction crashes a leader at an action of its keeper, if such a crash is
// scheduled.
func (w *World) crashAtAction(r *replica, kind fleet.Kind, after bool) bool {
	i := slices.IndexFunc(w.crashes, func(c crashing) bool { return c.kind == kind && c.after == after })
	if i < 0 || w.healed {
		return false
	}
	c := w.crashes[i]
	w.crashes = slices.Delete(w.crashes, i, i+1)
	life := r.life
	w.after(0, func() { // after the caller has returned
		if r.life == life && w.crashNode(r.slot, c.lasts, keepsAll) {
			w.emit(property.Event{Kind: property.Fault, Who: r.name, Note: CrashAtAction.String()})
		}
	})
	return true
}

// provideFloor reconciles a restored log with the largest ceiling ever assigned, as an
// operator does when too few Redis nodes can report.
func (c *cluster) provideFloor(r *replica) {
	state := r.machine.Efficiency()
	if state.Fleet.IsZero() || state.Ready || state.ReconcileVersion != 0 {
		c.waiting = 0
		return
	}
	if c.waiting += operatorPause; c.waiting < 20*time.Second {
		return
	}
	var reports []recovery.Report
	for _, s := range c.w.serversOf(state.Fleet) {
		reports = append(reports, s.report())
	}
	e := recovery.Reconcile(state.Fleet.Fingerprint(), reports, false)
	r.propose(&machine.Reconcile{Version: e.Version, Ceiling: c.log.ceiling, Lives: e.Lives, Past: e.Past},
		func(answer) {})
}

// spares reports whether the fleet can do without one of its servers for good.
func (w *World) spares(s *redisServer) bool {
	servers := w.redises
	if w.cluster != nil {
		r := w.cluster.servingLeader()
		if r == nil || r.machine.Efficiency().NextVersion != 0 {
			return false
		}
		servers = w.serversOf(r.machine.Efficiency().Fleet)
	}
	good := 0
	for _, o := range servers {
		if o != s && o.wrong == 0 && o.remembers() {
			good++
		}
	}
	return good >= quorum.Size(len(servers))
}

// withoutVote returns a node of the fleet that does not vote, or "".
func (w *World) withoutVote() string {
	if w.plan.Setting != Service {
		i := slices.IndexFunc(w.redises, func(s *redisServer) bool { return s.report().Live == nil })
		if i < 0 {
			return ""
		}
		return w.redises[i].name
	}
	r := w.cluster.runningLeader()
	if r == nil {
		return "no leader"
	}
	state := r.machine.Efficiency()
	for i, s := range w.serversOf(state.Fleet) {
		if fleet.Goal(state).Next(i, s.report()) != recovery.Nothing || state.Lives[i].Pending {
			return s.name
		}
	}
	return ""
}

// unfinished returns the change that a Service has not completed, a process that cannot use the nodes, or "".
func (w *World) unfinished() string {
	for _, p := range w.processes {
		if p.fleet != "" && !p.usable && !p.down {
			return "the connection of " + p.name + " to the Redis nodes"
		}
	}
	if w.plan.Setting != Service {
		return ""
	}
	r := w.cluster.runningLeader()
	if r == nil {
		return "no leader"
	}
	switch state := r.machine.Efficiency(); {
	case state.Fleet.IsZero():
		return "no fleet"
	case state.NextVersion != 0:
		return "a change of the fleet"
	case !state.Ready:
		return "a reconciliation"
	case len(state.Migrations) > 0:
		return "the migration of " + state.Migrations[0].Prefix
	}
	return ""
}
