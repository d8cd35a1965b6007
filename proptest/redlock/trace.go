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

// texts describes the events: {a} is an attempt; {A} to {D} are parameters.
var texts = [...]string{
	startAttempt:            "attempt {a} starts",
	acquireArrives:          "the acquire of {a} arrives at node {B}, server {C}",
	acquireAnswered:         "{a} receives the answer of node {B}",
	giveUp:                  "{a} gives up on node {B}",
	raiseArrives:            "the raise of {a} arrives at node {B}, server {C}",
	raiseAnswered:           "{a} receives the answer to its raise of node {B}",
	lateRaise:               "another raise of {a} arrives at node {B}, server {C}",
	renewArrives:            "a renewal of {a} arrives at node {B}, server {C}",
	lockEnds:                "the lock ends on node {A}, server {B}",
	recordDropped:           "node {A}, server {B} drops the record of the lock",
	nodeLost:                "the server of node {A} restarts",
	addressMoves:            "the address of node {A} moves to a new server",
	addressMovesBack:        "the address of node {A} moves back to server {B}",
	joinNode:                "a join nonce is put on node {A}, server {B}",
	rangeAssigned:           "the log names the life of node {A}, server {B}",
	initSent:                "init is sent to node {A}, server {B}",
	initArrives:             "init arrives at node {A}, server {B}",
	setClosed:               "the log closes its oldest set of lives",
	timeClosesSets:          "time closes the sets of lives",
	quarantineEnds:          "the quarantine of node {A}, server {B} ends; processes drop connections to old servers",
	advanceArrives:          "advance arrives at node {A}, server {B}",
	otherCall:               "a call for another lock brings the log's version to node {A}, server {B}",
	ceilingRaised:           "the log raises its ceiling, since node {A} approaches it",
	nodeReports:             "node {A}, server {B} reports that it has reached the goal",
	moveBegins:              "the log begins a migration of the lock",
	moveAborted:             "the log aborts the migration",
	changeFinished:          "the log finishes its change",
	fleetChanges:            "the log begins to change the fleet",
	fleetForced:             "the restored log is set to the fleet that its nodes name",
	correctnessGrant:        "a grant in correctness mode",
	backup:                  "a backup of the log is taken",
	restored:                "the log is restored from the backup",
	nodeReportsForReconcile: "node {A} reports to the reconciling log",
	reconciled:              "the log reconciles with the reports",
	reportTo:                "node {C}, server {D} reports for the recovery of node {A}, server {B}",
	reserveAt:               "node {C}, server {D} stores the floor for node {A}, server {B}",
	spreadArrives:           "the grant of {a} arrives at node {B}, server {C}",
	releaseArrives:          "the release of {a} arrives at node {B}, server {C}",
	breakArrives:            "the break of {a} under topology {D} arrives at node {B}, server {C}",
	breakChecked:            "the break of {a} finds the server that the address of node {B} leads to",
	lockExpires:             "the attempt expires on node {A}, server {B}",
	restAsked:               "{a} asks the remaining nodes",
	grantSpread:             "{a} sends its grant to the remaining nodes",
	attemptEnds:             "{a} ends",
	endArrives:              "the release of {a} arrives at node {B}, server {C}",
	renewalRound:            "{a} renews under topology {D} on the nodes {mask}, at the former servers of {old}",
}

// describe formats an event and its effects.
func (s *Search) describe(e event, was, is *State) string {
	text := strings.NewReplacer("{a}", string('A'+rune(e.A)), "{A}", fmt.Sprint(e.A), "{B}", fmt.Sprint(e.B), "{C}",
		fmt.Sprint(e.C),
		"{D}", fmt.Sprint(e.D), "{mask}", fmt.Sprintf("%05b", e.C), "{old}", fmt.Sprintf("%05b", e.B)).Replace(texts[e.Kind])
	if l := is.Log; l != was.Log {
		text += fmt.Sprintf("; log: version %d, %s, last token %s, floor %s, ceiling %s, fleet %d", l.Version, l.modes(),
			name(l.Last), name(l.Floor), name(l.Ceiling), l.Fleet)
	}
	for i := range s.Nodes {
		for m := range is.Nodes[i].Count {
			text += describeServer(i, m, is.Nodes[i].Servers[m], was.Nodes[i].Servers[m])
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

// describeServer formats a server that has changed.
func describeServer(n int, m uint8, is, was server) string {
	is.Reached, was.Reached = false, false
	switch {
	case is == was:
		return ""
	case is.Version == 0:
		return fmt.Sprintf("; node %d, server %d: empty", n, m)
	}
	text := fmt.Sprintf("; node %d, server %d: version %d, fleet %d, max %s, floor %s, ceiling %s", n, m,
		is.Version, is.Fleet, name(is.Max), name(is.Floor), name(is.Ceiling))
	if is.Lock != 0 {
		text += fmt.Sprintf(", held by %c with %s", 'A'+rune(is.Lock-1), name(is.Last))
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
