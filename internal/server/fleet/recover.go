package fleet

import (
	"slices"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// joining is a node that is being recovered.
type joining struct {
	join     string
	assigned bool
	tokens   machine.Range
	retry    engine.Instant // do not initialise before; zero means now
}

// driveNodes brings every node to the goal.
func (d *decision) driveNodes() {
	var initialise []Action
	for i := range d.nodes {
		address := d.state.Fleet.Addresses[i]
		switch d.goal.Next(d.reports[i]) {
		case recovery.Advance:
			delete(d.joins, address)
			d.do(Action{Kind: Advance, Node: i, Goal: d.goal})
		case recovery.Recover:
			if a, ok := d.recover(i, address); ok && a.Kind == Initialise {
				initialise = append(initialise, a)
			} else if ok {
				d.do(a)
			}
		case recovery.Nothing:
			if d.reports[i].Reached {
				delete(d.joins, address)
			}
		}
	}
	// The other nodes get the new ceiling first: tokens of the new voter are above
	// the old one.
	d.step.Actions = append(d.step.Actions, initialise...)
}

// recover returns the next action for a node that does not vote. It assigns a range
// of tokens only when the quarantine is over, so that a server that keeps restarting
// does not use up ranges.
func (d *decision) recover(i int, address string) (Action, bool) {
	j, node := d.joins[address], &d.nodes[i]
	if j == nil || j.join != node.Joining { // new, empty again, or joined by another leader
		return Action{Kind: Join, Node: i}, true
	}
	first := !slices.Contains(d.state.Assigned, address)
	left := time.Duration(0)
	if !j.retry.IsZero() {
		left = max(0, d.now.Until(j.retry))
	}
	if !j.assigned && !first {
		left = max(left, node.Quarantine)
	}
	if left > 0 {
		if d.step.Waiting == "" {
			d.step.Waiting = "quarantine of Redis node " + address + ", " + text(left) + " left"
		}
		return Action{}, false
	}
	if !j.assigned {
		return Action{Kind: Assign, Node: i}, true
	}
	return Action{Kind: Initialise, Node: i}, true
}

// Joined records that a node has a join nonce.
func (p *Plan) Joined(address, join string) { p.joins[address] = &joining{join: join} }

// Assigned records the range of tokens that the log assigned to a node's join nonce.
func (p *Plan) Assigned(address string, tokens machine.Range) {
	if j := p.joins[address]; j != nil {
		j.assigned, j.tokens = true, tokens
	}
}

// Joining returns the join nonce of a node and the range that is assigned to it.
func (p *Plan) Joining(address string) (join string, tokens machine.Range) {
	if j := p.joins[address]; j != nil {
		return j.join, j.tokens
	}
	return "", machine.Range{}
}

// Wait records that a node must not be initialised before a time.
func (p *Plan) Wait(address string, until engine.Instant) {
	if j := p.joins[address]; j != nil {
		j.retry = until
	}
}
