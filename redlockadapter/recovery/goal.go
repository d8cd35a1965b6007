package recovery

import "github.com/leased-project/leased/fencing"

// Goal is the state that every node of the fleet must reach. It only moves up.
type Goal struct {
	Version        uint64
	Fleet          string
	Floor, Ceiling fencing.Token
}

// Step is the next step for a node.
type Step uint8

const (
	// Nothing: the node has reached the goal, or is unreachable.
	Nothing Step = iota
	// Recover: the node does not vote in this fleet. Put a join nonce on it, have the
	// log assign a range to that nonce, and initialise the node.
	Recover
	// Advance: raise the node's version, floor and ceiling to the goal.
	Advance
)

// Next returns the next step for a node with this report.
func (g Goal) Next(r Report) Step {
	switch {
	case !r.Reached:
		return Nothing
	case !r.in(g.Fleet):
		return Recover
	case !g.reached(r) || r.Live.Ceiling < g.Ceiling:
		return Advance
	}
	return Nothing
}

// reached reports whether a node refuses older versions, and tokens at or below the
// goal's floor.
func (g Goal) reached(r Report) bool {
	return r.in(g.Fleet) && r.Live.Version >= g.Version && r.Live.Floor >= g.Floor
}

// Met reports whether a quorum has reached the goal. From then on no attempt with an older
// version can be granted: every quorum has a node that refuses it.
func (g Goal) Met(reports []Report) bool {
	n := 0
	for _, r := range reports {
		if g.reached(r) {
			n++
		}
	}
	return n >= quorum(len(reports))
}

// RaiseCeiling returns a new ceiling for the log, if a node has used half of the last Jump
// below the current one.
func (g Goal) RaiseCeiling(reports []Report) (to fencing.Token, needed bool) {
	for _, r := range reports {
		if r.in(g.Fleet) && r.Live.Max > g.Ceiling-min(g.Ceiling, Jump/2) {
			return max(g.Ceiling, r.Live.Max) + Jump, true
		}
	}
	return 0, false
}
