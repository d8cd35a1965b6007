package recovery

import "github.com/leased-project/leased/fencing"

// Goal is the state that every node of the fleet must reach. It only moves up.
type Goal struct {
	Version uint64
	Fleet   string
	// Lives are the lives that vote in the fleet, by the order of its addresses; empty
	// for a node without one.
	Lives          []string
	Floor, Ceiling fencing.Token
	// Successor names the fleet that replaces this one; empty while there is none.
	Successor string
}

// Step is the next step for a node.
type Step uint8

const (
	// Nothing: the node has reached the goal, or is unreachable.
	Nothing Step = iota
	// Recover: the node does not vote in this fleet, or in another life. Put a join nonce
	// on it, have the log assign a range to that nonce and name its life, and initialise
	// the node when the older sets of lives are closed.
	Recover
	// Advance: raise the node's version, floor and ceiling to the goal.
	Advance
)

// Next returns the next step for a node, by its place in the fleet and its report.
func (g Goal) Next(node int, r Report) Step {
	switch {
	case !r.Reached:
		return Nothing
	case !g.votes(node, r):
		return Recover
	case !g.reached(node, r) || r.Live.Ceiling < g.Ceiling || r.Live.Successor != g.Successor:
		return Advance
	}
	return Nothing
}

// votes reports whether a node votes in the fleet, in the life that the goal names.
func (g Goal) votes(node int, r Report) bool { return r.in(g.Fleet) && r.Life() == g.Lives[node] }

// reached reports whether a node refuses older versions, and tokens at or below the
// goal's floor.
func (g Goal) reached(node int, r Report) bool {
	return g.votes(node, r) && r.Live.Version >= g.Version && r.Live.Floor >= g.Floor
}

// Reached returns how many nodes have reached the goal's version and floor.
func (g Goal) Reached(reports []Report) (n int) {
	for i, r := range reports {
		if g.reached(i, r) {
			n++
		}
	}
	return n
}

// Met reports whether a quorum has reached the goal. From then on no attempt with an older
// version can be granted: every quorum has a node that refuses it.
//
// That includes older sets of lives. A life that they do not name votes only after they
// are closed, so the lives that reached the goal before that belong to them, too.
func (g Goal) Met(reports []Report) bool { return g.Reached(reports) >= quorum(len(reports)) }

// Granted returns an upper bound on the tokens granted before the goal was met, as [Set.Granted]
// does for a set of lives, or None while it is not met.
func (g Goal) Granted(reports []Report) fencing.Token {
	if !g.Met(reports) {
		return fencing.None
	}
	top := fencing.Token(1)
	for i, r := range reports {
		if g.reached(i, r) {
			top = max(top, r.Live.Max)
		}
	}
	return top
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
