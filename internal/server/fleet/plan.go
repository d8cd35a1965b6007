package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Kind is the kind of an Action.
type Kind uint8

// The kinds of actions. Those before Join append to the log, the others are for one node.
const (
	// Reconcile moves the log past Evidence, which the nodes reported at Version.
	Reconcile Kind = iota
	// FinishReconcile makes the efficiency mode ready.
	FinishReconcile
	// RaiseCeiling raises the log's ceiling to Ceiling.
	RaiseCeiling
	// FinishMigration completes the migration of Prefix that started at Version. No token above Granted was
	// granted before it in efficiency mode, if that is not None.
	FinishMigration
	// FinishFleet completes the change of the fleet that started at Version.
	FinishFleet
	// CloseSets removes the sets of lives of versions below Version. They have granted no token above Granted,
	// if that is not None.
	CloseSets
	// Join puts a fresh join nonce on a node.
	Join
	// Rejoin repeats the join nonce Join of a node.
	Rejoin
	// NameLife makes the log name Life at Version.
	NameLife
	// FinishRecovery makes the log record that Life votes.
	FinishRecovery
	// Advance raises a node to Goal.
	Advance
	// Initialise makes a node a voter, with Range.
	Initialise
)

// String describes an action, to follow the word "cannot".
func (k Kind) String() string {
	return [...]string{"reconcile the log with the Redis nodes", "complete the reconciliation", "raise the ceiling",
		"complete a migration",
		"complete the change of the fleet", "close older sets of Redis servers", "put a join nonce on a Redis node",
		"repeat the join nonce of a Redis node",
		"name the life of a Redis node", "complete the recovery of a Redis node", "advance a Redis node",
		"initialise a Redis node"}[k]
}

// Action is one thing that the leader does. Actions are idempotent and may be
// interrupted: the Plan of the next leader continues from the log and the nodes.
type Action struct {
	Kind     Kind
	Version  uint64
	Ceiling  fencing.Token
	Granted  fencing.Token
	Prefix   string
	Evidence recovery.Evidence

	// Node is the node that the action is for, and Server the run of its server that
	// reported: the action must not reach another one.
	Node   int
	Server string
	Join   string
	Life   string
	Goal   recovery.Goal
	Range  recovery.Range
}

// Step is a decision of a Plan.
type Step struct {
	Actions []Action
	// Migrations has what each migration is waiting for, by prefix.
	Migrations map[string]string
	// Waiting describes the condition that the fleet, or its change, waits for.
	Waiting string
	// Busy is true if there is more to do than to monitor the nodes.
	Busy bool
}

// Plan decides what the leader does next with the Redis nodes. It remembers only
// what can be found out again: a new Plan may wait longer, but is as safe.
//
// Invariants:
//  1. after a restore, it names no life and completes no change before the log has
//     moved past everything that a quorum of the nodes reports: the log may have
//     forgotten how far it had raised the ceiling;
//  2. it completes a migration or a change of the fleet only after a quorum of the
//     nodes rejects older versions;
//  3. a join nonce is on the node before the log names its life;
//  4. a life votes only after no older set of lives can grant: an address may lead to two
//     living servers;
//  5. no token that an older set has granted is above the floor of the life. The floor is known when that set is
//     closed, from the reports of a quorum of its lives, or else it is the ceiling.
type Plan struct {
	reached map[change]engine.Instant // when a quorum first met the goal of a change
	servers map[string]string         // the run of the server that each address led to when it answered last
	silent  map[uint64]silence        // the sets of lives that cannot be asked, by version
}

// silence describes how long fewer than a quorum of a set of lives could be asked.
type silence struct {
	since engine.Instant
	looks int // in a row
}

// change identifies a migration, or the change of the fleet.
type change struct {
	prefix  string
	version uint64
	fleet   bool
}

// NewPlan returns a Plan without knowledge of the nodes.
func NewPlan() *Plan {
	return &Plan{reached: map[change]engine.Instant{}, servers: map[string]string{}, silent: map[uint64]silence{}}
}

// Step decides what to do now. Nodes are in the order of state.Fleet.Addresses.
func (p *Plan) Step(state machine.Efficiency, nodes []recovery.Node, now engine.Instant) Step {
	p.prune(state)
	step := Step{Migrations: map[string]string{}}
	d := decision{Plan: p, state: state, nodes: nodes, now: now, step: &step, goal: Goal(state)}
	for i := range nodes {
		d.reports = append(d.reports, nodes[i].Report)
	}
	d.decide()
	for i, r := range d.reports {
		if r.Reached {
			p.servers[state.Fleet.Addresses[i]] = r.Server
		}
	}
	step.Busy = len(step.Actions) > 0 || len(state.Migrations) > 0 || state.NextVersion != 0 ||
		!state.Fleet.IsZero() && !state.Ready || d.recovering
	return step
}

// reconciled reports whether the log is past everything that the nodes can have accepted.
// Only then may it name lives and complete changes.
func reconciled(state machine.Efficiency) bool { return state.ReconcileVersion != 0 }

// prune forgets changes that are over.
func (p *Plan) prune(state machine.Efficiency) {
	for key := range p.reached {
		over := key.version != state.NextVersion
		if !key.fleet {
			over = !slices.ContainsFunc(state.Migrations, func(m machine.Migration) bool {
				return m.Prefix == key.prefix && m.Version == key.version
			})
		}
		if over {
			delete(p.reached, key)
		}
	}
	for version := range p.silent {
		if !slices.ContainsFunc(state.Open, func(s machine.Set) bool { return s.Version == version }) {
			delete(p.silent, version)
		}
	}
}

// Goal returns the state that the log requires of every node.
func Goal(state machine.Efficiency) recovery.Goal {
	goal := recovery.Goal{Version: state.Version, Fleet: state.Fleet.Fingerprint(), Floor: state.Floor,
		Ceiling: state.Ceiling,
		Lives:   make([]string, len(state.Lives))}
	for i, l := range state.Lives {
		goal.Lives[i] = l.Name
	}
	if state.NextVersion != 0 {
		goal.Successor = successor(state.Next)
	}
	return goal
}

// noNodes is the successor of a fleet that was removed.
const noNodes = "none"

// successor describes the fleet that replaces another one, for its nodes.
func successor(next engine.Fleet) string {
	if next.IsZero() {
		return noNodes
	}
	return strings.Join(next.Addresses, ",")
}

// replacedText says which fleet replaced the one of a restored log, and what to do.
func replacedText(successor string) string {
	const cancelled = "; if that change was cancelled, 'leased redis init --floor FLOOR --force' continues with the " +
		"old fleet"
	if successor == noNodes {
		return "the fleet was removed after this backup; remove it again: migrate all locks to correctness mode, and " +
			"set a fleet without nodes, with force" + cancelled
	}
	return "the fleet was replaced by " + successor +
		" after this backup; set the present fleet with 'leased redis fleet set --force " +
		strings.ReplaceAll(successor, ",", " ") + "'" + cancelled
}

// decision is one call of Step.
type decision struct {
	*Plan
	state      machine.Efficiency
	nodes      []recovery.Node
	reports    []recovery.Report
	now        engine.Instant
	goal       recovery.Goal
	step       *Step
	recovering bool // some node is being recovered
}

func (d *decision) do(a Action) { d.step.Actions = append(d.step.Actions, a) }

func (d *decision) decide() {
	if d.state.NextVersion != 0 {
		d.changeFleet()
	}
	if d.state.Fleet.IsZero() {
		d.migrateWithoutFleet()
		return
	}
	if !reconciled(d.state) || d.state.Restored && !d.state.Ready && d.sharedNamespace() {
		d.reconcile() // perhaps again: a node that has not reported before knows more than the others
		return
	}
	if d.sharedNamespace() {
		d.step.Waiting = "another service to stop using the Redis nodes under the same namespace; give one of the " +
			"services another namespace"
		d.stall(d.step.Waiting)
		return
	}
	if to, needed := d.goal.RaiseCeiling(d.reports); needed {
		d.do(Action{Kind: RaiseCeiling, Ceiling: to})
	}
	d.closeSets()
	d.driveNodes()
	if !d.state.Ready {
		d.finishReconcile()
		return
	}
	for i := range d.state.Migrations {
		d.migrate(&d.state.Migrations[i])
	}
}

// sharedNamespace reports whether a node has a version that this log never had. Only
// another service can have set it, or the log that a restore has discarded.
func (d *decision) sharedNamespace() bool {
	return slices.ContainsFunc(d.reports, func(r recovery.Report) bool {
		return r.Reached && r.Live != nil && r.Live.Fleet == d.goal.Fleet && r.Live.Version > d.state.Version
	})
}

// reconcile moves a log that may have forgotten something past the reports of the
// nodes.
func (d *decision) reconcile() {
	e := recovery.Reconcile(d.goal.Fleet, d.reports, !d.state.Restored)
	if e.Enough {
		d.do(Action{Kind: Reconcile, Version: d.state.Version, Evidence: e})
	}
	d.step.Waiting = fmt.Sprintf("%d of %d Redis nodes have reported their tokens, %d are needed", e.Reporters,
		len(d.nodes), quorum(d.nodes))
	switch {
	case e.Successor != "":
		d.step.Waiting = "another fleet: " + replacedText(e.Successor)
	case d.state.Restored && !e.Enough:
		d.step.Waiting += "; if the others are lost, provide a floor with 'leased redis init --floor'"
	}
	d.stall(d.step.Waiting)
}

// finishReconcile makes the mode ready when a quorum has met the goal.
func (d *decision) finishReconcile() {
	n := 0
	for i, r := range d.reports {
		if r.Reached && d.goal.Next(i, r) == recovery.Nothing {
			n++
		}
	}
	if n >= quorum(d.nodes) && d.goal.Met(d.reports) {
		d.do(Action{Kind: FinishReconcile, Version: d.state.Version})
	}
	d.step.Waiting = d.progress(n)
	d.stall(d.step.Waiting)
}

// stall makes all migrations wait for the fleet.
func (d *decision) stall(reason string) {
	for _, m := range d.state.Migrations {
		d.step.Migrations[m.Prefix] = "efficiency mode to be ready: " + reason
	}
}

func (d *decision) progress(n int) string {
	return fmt.Sprintf("%d of %d Redis nodes have the new version, %d are needed", n, len(d.nodes), quorum(d.nodes))
}

func holders(n int) string {
	if n == 1 {
		return "1 holder to release"
	}
	if n == machine.MaxHolders {
		return fmt.Sprintf("%d or more holders to release", n)
	}
	return fmt.Sprintf("%d holders to release", n)
}

// text returns a duration, rounded up to whole seconds.
func text(d time.Duration) string {
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}

// quorum returns the size of a majority.
func quorum(nodes []recovery.Node) int { return len(nodes)/2 + 1 }
