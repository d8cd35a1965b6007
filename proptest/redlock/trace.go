package redlock

import (
	"fmt"
	"strings"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// failure formats a violation with its trace.
func (s *Search) failure(err error, events []event) error {
	var b strings.Builder
	w := s.First()
	for i, e := range events {
		then := w
		_, _ = s.apply(&then, e)
		fmt.Fprintf(&b, "%3d %s\n", i+1, s.describe(e, &w, &then))
		w = then
	}
	return fmt.Errorf("%w, in %d steps:\n%s", err, len(events), b.String())
}

// texts describes the events: {a} is an attempt, {n} and {m} are nodes.
var texts = [...]string{
	startAttempt:            "attempt {a} starts",
	acquireArrives:          "the acquire of {a} arrives at node {m}",
	acquireAnswered:         "{a} receives the answer of node {m}",
	giveUp:                  "{a} gives up on node {m}",
	raiseArrives:            "the raise of {a} arrives at node {m}",
	raiseAnswered:           "{a} receives the answer to its raise of node {m}",
	lateRaise:               "another raise of {a} arrives at node {m}",
	renewArrives:            "a renewal of {a} arrives at node {m}",
	lockEnds:                "the lock ends on node {n}",
	recordDropped:           "node {n} drops the record of the lock",
	nodeLost:                "node {n} loses its state",
	joinNode:                "a join nonce is put on node {n}",
	rangeAssigned:           "the log assigns a range to the join nonce of node {n}",
	initArrives:             "init arrives at node {n}",
	advanceArrives:          "advance arrives at node {n}",
	otherCall:               "a call for another lock brings the log's version to node {n}",
	ceilingRaised:           "the log raises its ceiling, since node {n} approaches it",
	nodeReports:             "node {n} reports that it has reached the goal",
	moveBegins:              "the log begins a migration of the lock",
	moveAborted:             "the log aborts the migration",
	changeFinished:          "the log finishes its change",
	fleetChanges:            "the log begins to change the fleet",
	correctnessGrant:        "a grant in correctness mode",
	backup:                  "a backup of the log is taken",
	restored:                "the log is restored from the backup",
	nodeReportsForReconcile: "node {n} reports to the restored log",
	reconciled:              "the log reconciles with the reports",
	reportTo:                "node {m} reports for the recovery of node {n}",
	reserveAt:               "node {m} stores the floor for node {n}",
}

// describe formats an event and its effects.
func (s *Search) describe(e event, was, is *State) string {
	text := strings.NewReplacer("{a}", string('A'+rune(e.A)), "{n}", fmt.Sprint(e.A), "{m}", fmt.Sprint(e.B)).Replace(texts[e.Kind])
	if l := is.Log; l != was.Log {
		text += fmt.Sprintf("; log: version %d, %s, last token %s, floor %s, ceiling %s, fleet %d", l.Version, l.modes(), name(l.Last), name(l.Floor), name(l.Ceiling), l.Fleet)
	}
	for i := range s.Nodes {
		n, before := is.Nodes[i], was.Nodes[i]
		n.Exchanges, before.Exchanges = [maxAttempts]exchange{}, [maxAttempts]exchange{}
		n.Reached, before.Reached = false, false
		switch {
		case n == before:
		case n.Version == 0:
			text += fmt.Sprintf("; node %d: empty", i)
		default:
			text += fmt.Sprintf("; node %d: version %d, fleet %d, max %s, floor %s, ceiling %s", i, n.Version, n.Fleet, name(n.Max), name(n.Floor), name(n.Ceiling))
			if n.Lock != 0 {
				text += fmt.Sprintf(", held by %c with %s", 'A'+rune(n.Lock-1), name(n.Last))
			}
		}
	}
	for i := range s.Attempts {
		switch a := is.Attempts[i]; {
		case a == was.Attempts[i]:
		case a.Outcome == quorum.Granted:
			text += fmt.Sprintf("; %c is granted %s", 'A'+rune(i), name(a.Token))
		case a.Outcome == quorum.Lost:
			text += fmt.Sprintf("; %c is lost", 'A'+rune(i))
		case a.Proposed != 0:
			text += fmt.Sprintf("; %c raises to %s", 'A'+rune(i), name(a.Proposed))
		default:
			text += fmt.Sprintf(" under version %d of fleet %d", a.Version, a.Fleet)
		}
	}
	return text
}

// modes formats the mode of the lock.
func (r *register) modes() string {
	names := [...]string{none: "", efficiency: "efficiency", correctness: "correctness"}
	if r.Next != none {
		return names[r.Mode] + " to " + names[r.Next]
	}
	return names[r.Mode]
}
