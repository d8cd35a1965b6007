package recovery

import "github.com/leased-project/leased/fencing"

// Reconcile returns the largest version and ceiling that the nodes report, for a log that
// may lack them: one that was restored from a snapshot, or one that uses a fleet for the
// first time. ok is false while fewer than a quorum of the nodes can report; an operator
// must then provide a ceiling.
//
// complete says that the log was not rolled back, so it has every range that it assigned.
// Only then does a node without data count as a report.
func Reconcile(reports []Report, complete bool) (version uint64, ceiling fencing.Token, ok bool) {
	known := 0
	for _, r := range reports {
		if !r.Reached {
			continue
		}
		evidence := false
		for _, s := range []*State{r.Live, r.Former} {
			if s != nil {
				evidence = true
				version, ceiling = max(version, s.Version), max(ceiling, s.bound())
			}
		}
		if evidence || complete {
			known++
		}
	}
	return version, ceiling, known >= quorum(len(reports))
}

// bound returns an upper bound of the tokens that the node can have accepted. Without a
// service there is no ceiling, and Jump covers what an older state lacks.
func (s *State) bound() fencing.Token {
	if s.Ceiling < fencing.MaxToken {
		return s.Ceiling
	}
	return max(s.Max, s.Floor) + Jump
}

// StandaloneFloor returns the floor of a node that is recovered without a service: Jump
// above everything that a quorum reports, live or from a former life. The reports must be
// requested after the join nonce was put on the node. ok is false while fewer than a quorum
// can report.
func StandaloneFloor(reports []Report) (floor fencing.Token, ok bool) {
	known := 0
	for _, r := range reports {
		if !r.Reached || r.Live == nil && r.Former == nil {
			continue
		}
		known++
		for _, s := range []*State{r.Live, r.Former} {
			if s != nil {
				floor = max(floor, s.Max, s.Floor)
			}
		}
	}
	return floor + Jump, known >= quorum(len(reports))
}
