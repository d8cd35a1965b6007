package redlock

import (
	"fmt"
	"strings"
)

// failure writes a violation with the events that lead to it.
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

// describe writes an event in words, with what it changed.
func (s *Search) describe(e event, was, is *State) string {
	text := [...]string{
		startAttempt: "attempt %[1]c starts", acquireArrives: "acquire of %[1]c arrives at node %[3]d", hearAcquire: "%[1]c hears from node %[3]d",
		giveUp: "%[1]c gives up on node %[3]d", raiseArrives: "raise of %[1]c arrives at node %[3]d", hearRaise: "%[1]c hears of its raise at node %[3]d",
		lateRaise: "another raise of %[1]c arrives at node %[3]d", renewArrives: "renewal of %[1]c arrives at node %[3]d",
		lockEnds: "the lock ends on node %[2]d", recordDropped: "node %[2]d drops the idle record", nodeLost: "node %[2]d loses its state",
		joinNode: "a join nonce is put on node %[2]d", rangeAssigned: "the log assigns a range to the join nonce of node %[2]d",
		initArrives: "init arrives at node %[2]d", advanceArrives: "advance arrives at node %[2]d", nodeReports: "node %[2]d reports that it has reached the goal",
		moveBegins: "the log begins a move", moveAborted: "the log aborts the move", changeFinished: "the log finishes its change",
		fleetChanges: "the log begins a change of fleet", correctnessGrant: "a grant in correctness mode", backup: "a backup of the log is taken",
		restored: "the log is restored from the backup", nodeTells: "node %[2]d reports to the restored log", reconciled: "the log moves past the reports",
		reportTo: "node %[3]d reports for the recovery of node %[2]d", reserveAt: "node %[3]d stores the floor for node %[2]d",
	}[e.Kind]
	text = strings.TrimSuffix(fmt.Sprintf(text+"%.[1]s", 'A'+rune(e.A), e.A, e.B), "%!s(int32=65)")
	if i := strings.Index(text, "%!"); i >= 0 {
		text = text[:i]
	}
	if was.Log != is.Log && is.Log.Version != 0 {
		l := is.Log
		text += fmt.Sprintf("; log: version %d, mode %d to %d, last %s, floor %s, ceiling %s, fleet %d", l.Version, l.Mode, l.Next, name(l.Last), name(l.Floor), name(l.Ceiling), l.Fleet)
	}
	for n := range s.Nodes {
		if a, b := is.Nodes[n], was.Nodes[n]; a != b {
			a.Exchanges, b.Exchanges = [maxAttempts]exchange{}, [maxAttempts]exchange{}
			if a != b {
				text += fmt.Sprintf("; node %d: version %d, fleet %d, max %s, floor %s, ceiling %s, lock %d at %s", n, a.Version, a.Fleet, name(a.Max), name(a.Floor), name(a.Ceiling), a.Lock, name(a.Last))
			}
			for i := range s.Attempts {
				if x := is.Nodes[n].Exchanges[i]; x != was.Nodes[n].Exchanges[i] && x.Acquire == answered && e.Kind == acquireArrives {
					text += fmt.Sprintf("; answer %d %s", x.Says, name(x.Token))
				}
			}
		}
	}
	for a := range s.Attempts {
		if is.Attempts[a] != was.Attempts[a] {
			at := is.Attempts[a]
			text += fmt.Sprintf("; %c: version %d, fleet %d, proposed %s, outcome %d %s", 'A'+rune(a), at.Version, at.Fleet, name(at.Proposed), at.Outcome, name(at.Token))
		}
	}
	return text
}
