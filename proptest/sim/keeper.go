package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// The intervals of a keeper, as in production, except that followers poll less often.
const (
	keeperNext   = 5 * time.Millisecond
	keeperBusy   = 200 * time.Millisecond
	keeperIdle   = time.Second
	keeperFollow = 250 * time.Millisecond
)

// keeper brings the Redis nodes to the goal of the log while its replica leads.
// fleet.Plan decides; messages replace the goroutines and connections of production. A
// step continues even if its replica is deposed meanwhile.
type keeper struct {
	*replica
	plan  *fleet.Plan
	joins int
}

// keep starts the keeper of a replica after each boot.
func (r *replica) keep() {
	if r.w.plan.Setting != Service {
		return
	}
	k := &keeper{replica: r}
	r.w.timer(r.process, keeperFollow, k.once)
}

// once executes one step if the replica leads.
func (k *keeper) once() {
	state := k.machine.Efficiency() // before the nodes report
	servers := k.w.serversOf(state.Fleet)
	usable := len(servers) > 0 && k.w.connected(k.process, state.Fleet.Fingerprint(), servers)
	if k.serving() == nil {
		k.plan = nil
		k.w.timer(k.process, keeperFollow, k.once)
		return
	}
	if k.plan == nil {
		k.plan = fleet.NewPlan()
	}
	asked := servers
	if !usable {
		asked = nil
	}
	k.w.queryReports(k.process, asked, func(all []nodeReport) {
		nodes := make([]recovery.Node, len(servers))
		for i, s := range all {
			nodes[i] = s.node(state.Fleet.MaxTTL)
			if s.Life() == state.Lives[i].Name && s.Live != nil && s.Live.Ceiling > k.cluster.log.ceiling {
				k.w.violation(fmt.Errorf("node %d votes up to %d, above the ceiling of the log", i+1, s.Live.Ceiling))
			}
		}
		e := &execution{keeper: k, state: state, servers: servers, step: k.plan.Step(state, nodes,
			k.clock.instant(k.w.now))}
		e.phase(0)
	})
}

// execution executes one step, phase by phase.
type execution struct {
	*keeper
	state      machine.Efficiency
	servers    []*redisServer
	step       fleet.Step
	progressed bool
}

// phase executes the actions of a phase concurrently, then the next phase.
func (e *execution) phase(n int) {
	if n == len(fleet.Phases) {
		pause := keeperIdle
		switch {
		case e.progressed:
			pause = keeperNext
		case e.step.Busy:
			pause = keeperBusy
		}
		e.w.timer(e.process, pause, e.once)
		return
	}
	var actions []fleet.Action
	for _, a := range e.step.Actions {
		if slices.Contains(fleet.Phases[n], a.Kind) {
			actions = append(actions, a)
		}
	}
	missing := len(actions)
	if missing == 0 {
		e.phase(n + 1)
		return
	}
	life := e.life
	for _, a := range actions {
		if e.w.crashAtAction(e.replica, a.Kind, false) {
			return
		}
		e.do(a, func(done bool) {
			if e.life != life || e.w.crashAtAction(e.replica, a.Kind, true) {
				return
			}
			e.progressed = e.progressed || done
			if missing--; missing == 0 {
				e.phase(n + 1)
			}
		})
		if e.life != life { // the replica crashed during an action
			return
		}
	}
}

func (e *execution) do(a fleet.Action, done func(bool)) {
	if c := a.Command(e.state); c != nil {
		e.propose(c, func(got answer) { done(got.state == served && got.result.Code == machine.Done) })
		return
	}
	e.doNode(a, e.servers[a.Node], done)
}

// doNode calls one node. The call has no effect on another run of the server than the one
// that reported.
func (e *execution) doNode(a fleet.Action, s *redisServer, done func(bool)) {
	under := fleet.Goal(e.state).Fleet
	at := func(do func(n *redisnode.Node, now int64) redisnode.Reason) {
		call(e.w, e.process, s, true, func(n *redisnode.Node, now int64) redisnode.Reason {
			if n.Life() != a.Server {
				return redisnode.Empty
			}
			return do(n, now)
		}, func(reason redisnode.Reason, ok bool) { done(ok && reason == redisnode.Accepted) })
	}
	switch a.Kind {
	case fleet.Join, fleet.Rejoin:
		join := redisnode.Join{Nonce: a.Join, Version: e.state.Version, Fleet: under, Again: true,
			Gap: joinGap.Milliseconds()}
		if a.Kind == fleet.Join {
			e.joins++
			join.Nonce, join.Gap = fleet.JoinNonce(e.state.Version, fmt.Sprintf("%s.%d.%d", e.name, e.life, e.joins)), 0
		}
		at(func(n *redisnode.Node, now int64) redisnode.Reason {
			reason, _ := n.Join(now, join)
			return reason
		})
	case fleet.Advance:
		at(func(n *redisnode.Node, _ int64) redisnode.Reason {
			return n.Advance(a.Goal.Version, a.Goal.Fleet, a.Goal.Floor, a.Goal.Ceiling, a.Goal.Successor)
		})
	case fleet.Initialise:
		r := a.Range
		at(func(n *redisnode.Node, now int64) redisnode.Reason {
			return n.Init(now, redisnode.Range{Join: r.Join, Version: r.Version, Fleet: under, Member: s.address, Floor: r.Floor,
				Ceiling: r.Ceiling, Quarantine: r.Quarantine.Milliseconds(), Successor: r.Successor}).Reason
		})
	}
}
