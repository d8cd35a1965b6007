package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Node is what is known of one Redis node of the fleet. Nodes are in the order of
// Fleet.Addresses.
type Node struct {
	recovery.Report
	// Joining is the join nonce on a node that does not vote.
	Joining string
	// Quarantine is the time until the node may be initialised, if it has lost
	// its state and a join nonce is on it.
	Quarantine time.Duration
}

// Kind says what an Action does.
type Kind uint8

// The kinds of actions. The first five are entries of the log, the others are
// calls to one node.
const (
	// Reconcile moves the log past Version and Ceiling, which the nodes reported.
	Reconcile Kind = iota
	// FinishReconcile makes the efficiency mode ready.
	FinishReconcile
	// RaiseCeiling raises the log's ceiling to Ceiling.
	RaiseCeiling
	// FinishMove completes the move of Prefix that began at Version.
	FinishMove
	// FinishFleet completes the change of the fleet that began at Version.
	FinishFleet
	// Join puts a fresh join nonce on an empty node.
	Join
	// Assign has the log assign a range of tokens to the join nonce.
	Assign
	// Advance raises a node to Goal.
	Advance
	// Initialise makes a node a voter, with the assigned range.
	Initialise
)

// String returns what an action does, as the end of "cannot ...".
func (k Kind) String() string {
	return [...]string{"reconcile the log with the Redis nodes", "complete the reconciliation", "raise the ceiling", "finish a move",
		"finish the change of the fleet", "put a join nonce on a Redis node", "assign a range to a Redis node", "advance a Redis node",
		"initialise a Redis node"}[k]
}

// Action is one step of the leader. Every action may be repeated, and may be
// interrupted: the next leader's Plan continues from the log and the nodes.
type Action struct {
	Kind    Kind
	Node    int
	Version uint64
	Ceiling fencing.Token
	Prefix  string
	Goal    recovery.Goal
}

// Step is what a Plan decides at one moment.
type Step struct {
	Actions []Action
	// Moves says what each move is waiting for, by prefix.
	Moves map[string]string
	// Waiting says what the fleet, or its change, is waiting for.
	Waiting string
	// Busy: there is more to do than to watch the nodes.
	Busy bool
}

// Plan decides what the leader does next with the Redis nodes. It remembers only
// what can be found out again: a Plan that starts anew waits longer, and is as
// safe.
//
// Invariants:
//  1. after a restore, no range is assigned and no change completes before the log
//     was moved past everything that a quorum of the nodes reports: it may have
//     forgotten ranges that it assigned;
//  2. a move or a change of fleet completes only after a quorum of the nodes
//     refuses older versions;
//  3. a join nonce is on the node before the log assigns a range to it.
type Plan struct {
	fleet   engine.Fleet              // of the last step
	reached map[change]engine.Instant // when a quorum was first seen at a change's goal
	joins   map[string]*joining       // by address
}

// change identifies a move, or the change of the fleet.
type change struct {
	prefix  string
	version uint64
	fleet   bool
}

// NewPlan returns a Plan that knows nothing yet.
func NewPlan() *Plan {
	return &Plan{reached: map[change]engine.Instant{}, joins: map[string]*joining{}}
}

// Step decides what to do now. Nodes are in the order of state.Fleet.Addresses.
func (p *Plan) Step(state machine.Efficiency, nodes []Node, now engine.Instant) Step {
	if !state.Fleet.Equal(p.fleet) || !state.Fleet.IsZero() && !known(state) {
		clear(p.joins) // ranges of another fleet, or of a log that was rolled back
	}
	p.fleet = state.Fleet
	p.prune(state)
	step := Step{Moves: map[string]string{}}
	d := decision{Plan: p, state: state, nodes: nodes, now: now, step: &step, goal: Goal(state)}
	for i := range nodes {
		d.reports = append(d.reports, nodes[i].Report)
	}
	d.decide()
	step.Busy = len(step.Actions) > 0 || len(state.Moves) > 0 || !state.Next.IsZero() || state.NextVersion != 0 ||
		!state.Fleet.IsZero() && !state.Ready || len(p.joins) > 0
	return step
}

// known reports whether the log knows everything that the nodes can have accepted,
// so that it may assign ranges and complete changes.
func known(state machine.Efficiency) bool { return state.Ready || state.ReconcileVersion != 0 }

// prune forgets changes that are over.
func (p *Plan) prune(state machine.Efficiency) {
	for key := range p.reached {
		over := key.version != state.NextVersion
		if !key.fleet {
			over = !slices.ContainsFunc(state.Moves, func(m machine.Move) bool { return m.Prefix == key.prefix && m.Version == key.version })
		}
		if over {
			delete(p.reached, key)
		}
	}
}

// Goal returns where the log wants every node to be.
func Goal(state machine.Efficiency) recovery.Goal {
	return recovery.Goal{Version: state.Version, Fleet: state.Fleet.Fingerprint(), Floor: state.Floor, Ceiling: state.Ceiling}
}

// decision is one call of Step.
type decision struct {
	*Plan
	state   machine.Efficiency
	nodes   []Node
	reports []recovery.Report
	now     engine.Instant
	goal    recovery.Goal
	step    *Step
}

func (d *decision) do(a Action) { d.step.Actions = append(d.step.Actions, a) }

func (d *decision) decide() {
	if d.state.NextVersion != 0 {
		d.changeFleet()
	}
	if d.state.Fleet.IsZero() {
		d.moveWithoutFleet()
		return
	}
	if !known(d.state) {
		d.reconcile()
		return
	}
	if d.foreign() {
		d.step.Waiting = "the Redis nodes to be left alone: another service uses them under the same namespace; give one of the services another namespace"
		d.stall(d.step.Waiting)
		return
	}
	if to, needed := d.goal.RaiseCeiling(d.reports); needed {
		d.do(Action{Kind: RaiseCeiling, Ceiling: to})
	}
	d.drive()
	if !d.state.Ready {
		d.finishReconcile()
		return
	}
	for i := range d.state.Moves {
		d.move(&d.state.Moves[i])
	}
}

// foreign reports whether a node has a version that this log never had. Only
// another service can have put it there.
func (d *decision) foreign() bool {
	return slices.ContainsFunc(d.reports, func(r recovery.Report) bool {
		return r.Reached && r.Live != nil && r.Live.Fleet == d.goal.Fleet && r.Live.Version > d.state.Version
	})
}

// reconcile moves a log that may have forgotten something past what the nodes
// know.
func (d *decision) reconcile() {
	whole := !d.state.Restored // the log knows all that it ever assigned
	version, ceiling, ok := recovery.Reconcile(d.reports, whole)
	if ok {
		d.do(Action{Kind: Reconcile, Version: version, Ceiling: ceiling})
	}
	n := 0
	for _, r := range d.reports {
		if r.Reached && (whole || r.Live != nil || r.Former != nil) {
			n++
		}
	}
	d.step.Waiting = fmt.Sprintf("%d of %d Redis nodes have reported how far tokens had come, %d are needed", n, len(d.nodes), quorum(d.nodes))
	if !whole && !ok {
		d.step.Waiting += "; if the others are lost, 'leased redis init --floor' goes on without them"
	}
	d.stall(d.step.Waiting)
}

// finishReconcile makes the mode ready when a quorum is at the goal.
func (d *decision) finishReconcile() {
	n := 0
	for _, r := range d.reports {
		if r.Reached && d.goal.Next(r) == recovery.Nothing {
			n++
		}
	}
	if n >= quorum(d.nodes) && d.goal.Met(d.reports) {
		d.do(Action{Kind: FinishReconcile, Version: d.state.Version})
	}
	d.step.Waiting = d.counted(n)
	d.stall(d.step.Waiting)
}

// stall says of all moves that they wait for the fleet.
func (d *decision) stall(reason string) {
	for _, m := range d.state.Moves {
		d.step.Moves[m.Prefix] = "efficiency mode to be ready: " + reason
	}
}

// moveWithoutFleet completes moves while there are no Redis nodes, and so no
// leases in efficiency mode.
func (d *decision) moveWithoutFleet() {
	for _, m := range d.state.Moves {
		if m.Holders > 0 {
			d.step.Moves[m.Prefix] = holders(m.Holders)
			continue
		}
		d.do(Action{Kind: FinishMove, Prefix: m.Prefix, Version: m.Version})
	}
}

// move completes a move when it may complete, else says what it waits for.
func (d *decision) move(m *machine.Move) {
	if m.From == engine.Correctness && m.Holders > 0 {
		d.step.Moves[m.Prefix] = holders(m.Holders)
		return
	}
	goal := recovery.Goal{Version: m.Version, Fleet: d.goal.Fleet}
	if m.To == engine.Efficiency {
		goal.Floor = d.goal.Floor
	}
	key := change{prefix: m.Prefix, version: m.Version}
	if !goal.Met(d.reports) && d.reached[key].IsZero() {
		d.step.Moves[m.Prefix] = d.counted(d.at(goal))
		return
	}
	left := time.Duration(0)
	if m.From == engine.Efficiency {
		left = d.leasesLeft(key, m.Now)
	}
	if left > 0 {
		d.step.Moves[m.Prefix] = "leases of the efficiency mode to end, " + text(left) + " left"
		return
	}
	d.do(Action{Kind: FinishMove, Prefix: m.Prefix, Version: m.Version})
}

// leasesLeft returns the time until every lease has ended that was granted or
// renewed before a quorum refused to.
func (d *decision) leasesLeft(key change, skip bool) time.Duration {
	if d.reached[key].IsZero() {
		d.reached[key] = d.now
	}
	if skip {
		return 0
	}
	return max(0, d.state.Fleet.MaxTTL-d.now.Since(d.reached[key]))
}

// changeFleet completes a change of the fleet: no lease of the old fleet can be
// granted any more, and those that were have ended.
func (d *decision) changeFleet() {
	s := &d.state
	goal := recovery.Goal{Version: s.NextVersion, Fleet: d.goal.Fleet}
	met := known(*s) && goal.Met(d.reports)
	key := change{version: s.NextVersion, fleet: true}
	if !met && !s.NextForce && !s.Fleet.IsZero() && d.reached[key].IsZero() {
		d.step.Waiting = "the old fleet: " + d.counted(d.at(goal))
		return
	}
	if left := d.leasesLeft(key, s.NextNow); left > 0 {
		d.step.Waiting = "leases of the old fleet to end, " + text(left) + " left"
		return
	}
	d.do(Action{Kind: FinishFleet, Version: s.NextVersion})
}

// at returns how many nodes have reached a goal's version and floor.
func (d *decision) at(goal recovery.Goal) (n int) {
	for _, r := range d.reports {
		if r.Reached && r.Live != nil && r.Live.Fleet == goal.Fleet && r.Live.Version >= goal.Version && r.Live.Floor >= goal.Floor {
			n++
		}
	}
	return n
}

func (d *decision) counted(n int) string {
	return fmt.Sprintf("%d of %d Redis nodes have the new version, %d are needed", n, len(d.nodes), quorum(d.nodes))
}

func holders(n int) string {
	if n == 1 {
		return "1 holder to release"
	}
	return fmt.Sprintf("%d holders to release", n)
}

// text rounds up to whole seconds.
func text(d time.Duration) string {
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}

// quorum is the size of a majority.
func quorum(nodes []Node) int { return len(nodes)/2 + 1 }
