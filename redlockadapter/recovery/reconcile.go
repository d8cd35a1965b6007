package recovery

import "github.com/leased-project/leased/fencing"

// Evidence is what the nodes of a fleet report to a log that may lack it: one that was
// restored from a snapshot, or one that uses the fleet for the first time.
type Evidence struct {
	// Version and Ceiling are the largest ones that the nodes report.
	Version uint64
	Ceiling fencing.Token
	// Lives are the lives that vote in the fleet, by the order of its addresses.
	Lives []string
	// Past are the lives of the sets that a restored log may have forgotten, as far as the
	// nodes prove them: the life that votes, empty for one that has ended, Unknown for
	// the others. Such a set may still grant, and the log must close it before a new life
	// votes. A quorum of reporters is enough for that.
	Past []string
	// Reporters is the number of nodes whose reports count.
	Reporters int
	// Enough: a quorum has reported. Otherwise an operator must provide a ceiling.
	Enough bool
	// Successor names the fleet that has replaced this one, according to its nodes. A log
	// that does not know that fleet must not use these nodes.
	Successor string
}

// Reconcile returns the evidence of the nodes of a fleet.
//
// complete says that the log was not rolled back, so it has every range that it assigned,
// and knows every fleet that it used. Only then does a node without data count as a
// report, and a retired node, or one of another fleet, as a node of this fleet.
func Reconcile(fleet string, reports []Report, complete bool) Evidence {
	e := Evidence{Lives: make([]string, len(reports)), Past: make([]string, len(reports))}
	if !complete {
		e.Successor = successor(fleet, reports)
	}
	for i, r := range reports {
		counts := r.Reached && complete
		for _, s := range r.states() {
			e.Version, e.Ceiling = max(e.Version, s.Version), max(e.Ceiling, s.bound())
			counts = counts || s.Fleet == fleet && (s.Successor == "" || e.Successor == "")
		}
		if counts {
			e.Reporters++
		}
		switch {
		case r.in(fleet):
			e.Lives[i], e.Past[i] = r.Life(), r.Life()
		case !r.Reached || r.Live != nil || r.Former == nil || r.Former.Fleet != fleet:
			e.Past[i] = Unknown
		}
	}
	e.Enough = e.Reporters >= quorum(len(reports)) && e.Successor == ""
	return e
}

// successor returns the fleet that has replaced a fleet, according to its nodes. The newest
// version decides. When a change of the fleet has begun, the nodes get later versions only with
// its successor, and a quorum of them has it before the change is completed. So a later
// version without one shows that the change was cancelled, and that an older node missed that.
func successor(fleet string, reports []Report) (name string) {
	newest := uint64(0)
	for _, r := range reports {
		for _, s := range r.states() {
			switch {
			case s.Fleet != fleet || s.Version < newest:
			case s.Version > newest:
				newest, name = s.Version, s.Successor
			case name == "":
				name = s.Successor
			}
		}
	}
	return name
}

// bound returns an upper bound of the tokens that the node can have accepted. Without a
// service there is no ceiling, and Jump covers what an older state lacks.
func (s *State) bound() fencing.Token {
	if s.Ceiling < fencing.MaxToken {
		return s.Ceiling
	}
	return max(s.Max, s.Floor) + Jump
}
