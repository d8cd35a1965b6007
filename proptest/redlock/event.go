package redlock

import (
	"fmt"
	"math/bits"

	"github.com/leased-project/leased/redlockadapter/recovery"
)

// kind is the kind of an event.
type kind uint8

const (
	startAttempt kind = iota
	acquireArrives
	acquireAnswered
	giveUp
	raiseArrives
	raiseAnswered
	lateRaise
	renewArrives
	lockEnds
	recordDropped
	nodeLost
	joinNode
	rangeAssigned
	initArrives
	advanceArrives
	otherCall
	ceilingRaised
	nodeReports
	moveBegins
	moveAborted
	changeFinished
	fleetChanges
	correctnessGrant
	backup
	restored
	nodeReportsForReconcile
	reconciled
	reportTo
	reserveAt
	addressMoves
	addressMovesBack
	initSent
	setClosed
	timeClosesSets
	quarantineEnds
	fleetForced
	spreadArrives
	releaseArrives
	breakArrives
	breakChecked
	lockExpires
	renewalRound
	restAsked
	grantSpread
	attemptEnds
	endArrives
)

// event is one step. Of an attempt: A is the attempt, B the node, C its server, D a
// topology. Of the start of an attempt: B is a mask of nodes, C a topology. Of a node: A is the node, B its
// server, C and D parameters. Of a renewal: B and C are masks of nodes.
type event struct {
	Kind       kind
	A, B, C, D uint8
}

// events calls yield with every possible next event. Some may have no effect.
func (s *Search) events(w *State, yield func(event)) {
	for a := range s.Attempts {
		if !w.Attempts[a].Started {
			for i, t := range w.Topologies {
				if t.Version != 0 {
					s.firsts(t.Fleet, func(first uint8) { yield(event{startAttempt, uint8(a), first, uint8(i), 0}) })
				}
			}
			break // attempts are interchangeable, so they start in order
		}
		for n := range s.Nodes {
			s.attemptEvents(w, uint8(a), uint8(n), yield)
		}
		s.leaseEvents(w, uint8(a), yield)
		s.clientEvents(w, uint8(a), yield)
	}
	for n := range uint8(s.Nodes) {
		s.nodeEvents(w, n, yield)
		for m := range w.Nodes[n].Count {
			switch {
			case w.Nodes[n].Servers[m].Gone:
			case s.Standalone:
				s.standaloneEvents(w, n, m, yield)
			default:
				s.keeperEvents(w, n, m, yield)
			}
		}
	}
	if !s.Standalone {
		s.logEvents(w, yield)
	}
}

func (s *Search) nodeEvents(w *State, n uint8, yield func(event)) {
	node := &w.Nodes[n]
	for m := range node.Count {
		if at := &node.Servers[m]; at.Lock != 0 && !s.Leases {
			yield(event{lockEnds, n, m, 0, 0})
		} else if s.Idle && at.Lock == 0 && at.Last != 0 {
			yield(event{recordDropped, n, m, 0, 0})
		}
		if w.Left.Back > 0 && m != node.Current && s.mayLeadBack(node, m) {
			yield(event{addressMovesBack, n, m, 0, 0})
		}
	}
	at := node.current()
	used := at.Version != 0 || at.Join != 0 || at.Former.Known
	if w.Left.Replaced > 0 && used && s.mayLose(w) && node.Count < maxServers {
		yield(event{addressMoves, n, 0, 0, 0})
	}
	if w.Left.Losses > 0 && used && s.mayLose(w) && (s.Standalone || node.Count < maxServers) {
		s.lossEvents(at, n, yield)
	}
}

// lossEvents yields the restarts of a server with each kind of surviving data.
func (s *Search) lossEvents(at *server, n uint8, yield func(event)) {
	yield(event{nodeLost, n, 0, uint8(nothing), 0})
	if s.Former && (at.Version != 0 || at.Former.Known) {
		yield(event{nodeLost, n, 0, uint8(all), 0})
	}
	if s.Former && s.Standalone && at.Version != 0 && at.Max != at.Floor {
		yield(event{nodeLost, n, 0, uint8(early), 0})
	}
	if s.Broken == OldEvidence && at.Version != 0 {
		yield(event{nodeLost, n, 0, uint8(old), 0})
	}
}

// keeperEvents yields the steps of the leader with a server. Its connection to a server
// may be as old as any other.
func (s *Search) keeperEvents(w *State, n, m uint8, yield func(event)) {
	at, l := &w.Nodes[n].Servers[m], &w.Log
	allowed := !l.reconciling() || s.Broken == RestoreRecoversFirst
	member := s.members(l.Fleet)>>n&1 == 1
	if l.reconciling() && member && m == w.Nodes[n].Current {
		yield(event{nodeReportsForReconcile, n, 0, 0, 0})
	}
	if l.changing() && member {
		yield(event{nodeReports, n, m, 0, 0})
	}
	if at.Init.Join != 0 && s.renewed(at) {
		yield(event{initArrives, n, m, 0, 0})
	}
	if allowed && member && (w.Left.Ranges > 0 || w.Nodes[n].Log.Version != 0 || s.Broken == JoinNonceTwice) {
		s.recoverEvents(w, n, m, yield)
	}
	if at.Version == 0 {
		return
	}
	if !l.reconciling() {
		yield(event{advanceArrives, n, m, 0, 0})
		if s.Raise && w.Left.Ranges > 0 {
			yield(event{ceilingRaised, n, m, 0, 0})
		}
	}
	if s.Others && at.Version < l.Version && at.Fleet == l.Fleet && l.Ready && l.NextFleet == 0 &&
		w.Nodes[n].Log.Life.server() == int(m) {
		yield(event{otherCall, n, m, 0, 0})
	}
	if s.Late {
		yield(event{advanceArrives, n, m, 1, 0})
	}
}

// recoverEvents yields the steps of the leader that make a server a voter.
func (s *Search) recoverEvents(w *State, n, m uint8, yield func(event)) {
	at, r := &w.Nodes[n].Servers[m], &w.Nodes[n].Log
	needed := s.next(w, int(n), int(m)) == recovery.Recover || s.Late
	if !needed {
		return
	}
	assigned := at.Join != 0 && r.Version != 0 && r.Life == lifeOf(int(m), at.Join)
	if (at.Join == 0 || s.Late && assigned) && (w.Left.Ranges > 0 && int(at.Joins) < len(joins)-1 ||
		s.Broken == JoinNonceTwice) {
		yield(event{joinNode, n, m, 0, 0})
	}
	leads := m == w.Nodes[n].Current || !s.Leases // during its quarantine
	if at.Join != 0 && !assigned && w.Left.Ranges > 0 && leads {
		yield(event{rangeAssigned, n, m, 0, 0})
	}
	if assigned {
		yield(event{initSent, n, m, 0, 0})
	}
}

func (s *Search) logEvents(w *State, yield func(event)) {
	l := &w.Log
	reconciling := l.reconciling()
	if w.Left.Moves > 0 && !l.changing() && !reconciling {
		yield(event{moveBegins, 0, 0, 0, 0})
	}
	if w.Left.Aborts > 0 && l.Next != none && !l.Reconciled {
		yield(event{moveAborted, 0, 0, 0, 0})
	}
	if w.Left.Fleets > 0 && !l.changing() && !reconciling {
		yield(event{fleetChanges, 0, 0, 0, 0})
	}
	if l.changing() && !reconciling && s.met(w) {
		yield(event{changeFinished, 0, 0, 0, 0})
	}
	if w.Left.Grants > 0 && s.served(l) {
		yield(event{correctnessGrant, 0, 0, 0, 0})
	}
	if w.Left.Backups > 0 && !l.Restored {
		yield(event{backup, 0, 0, 0, 0})
	}
	if w.Left.Restores > 0 && w.Left.Backups == 0 {
		yield(event{restored, 0, 0, 0, 0})
	}
	if reconciling {
		yield(event{reconciled, 0, 0, 0, 0})
		if w.ReportedSuccessor != 0 {
			yield(event{fleetForced, 0, 0, 0, 0})
		}
	}
	if w.Open[0] != 0 {
		yield(event{setClosed, 0, 0, everyone, 0})
		for heard := range everyone {
			if bits.OnesCount8(heard) == s.Nodes/2+1 && heard>>s.Nodes == 0 {
				yield(event{setClosed, 0, 0, heard, 0})
			}
		}
		if s.Time {
			yield(event{timeClosesSets, 0, 0, 0, 0})
		}
	}
}

// apply executes an event, and returns the property that it violates. An event may have no effect.
func (s *Search) apply(w *State, e event) error {
	s.violation = nil
	kinds[e.Kind].effect(s, w, e)
	return s.violation
}

// violated records that an event violates a property. The first one counts.
func (s *Search) violated(format string, args ...any) {
	if s.violation == nil {
		s.violation = Violation(fmt.Sprintf(format, args...))
	}
}

// at returns the server of an event of a node.
func (w *State) at(e event) *server { return &w.Nodes[e.A].Servers[e.B] }

// kinds has the description and the effect of each kind of event. In a description {a} is an attempt; {A} to {D} are
// parameters.
var kinds = [...]struct {
	text   string
	effect func(s *Search, w *State, e event)
}{
	startAttempt:    {"attempt {a} starts", (*Search).start},
	acquireArrives:  {"the acquire of {a} arrives at node {B}, server {C}", (*Search).arriveAcquire},
	acquireAnswered: {"{a} receives the answer of node {B}", (*Search).answer},
	giveUp:          {"{a} gives up on node {B}", (*Search).answer},
	raiseArrives:    {"the raise of {a} arrives at node {B}, server {C}", (*Search).arriveRaise},
	raiseAnswered:   {"{a} receives the answer to its raise of node {B}", (*Search).answer},
	lateRaise:       {"another raise of {a} arrives at node {B}, server {C}", (*Search).arriveLate},
	renewArrives:    {"a renewal of {a} arrives at node {B}, server {C}", (*Search).arriveLate},
	spreadArrives:   {"the grant of {a} arrives at node {B}, server {C}", (*Search).arriveLate},
	restAsked:       {"{a} asks the remaining nodes", (*Search).askRest},
	grantSpread:     {"{a} sends its grant to the remaining nodes", (*Search).spreadGrant},
	attemptEnds:     {"{a} ends", (*Search).end},
	endArrives:      {"the release of {a} arrives at node {B}, server {C}", (*Search).arriveEnd},

	releaseArrives: {"the release of {a} arrives at node {B}, server {C}", func(s *Search, w *State, e event) {
		s.release(w, e, true)
	}},
	breakArrives: {"the break of {a} under topology {D} arrives at node {B}, server {C}", (*Search).arriveBreak},
	breakChecked: {"the break of {a} finds the server that the address of node {B} leads to", (*Search).checkBreak},
	renewalRound: {"{a} renews under topology {D} on the nodes {mask}, at the former servers of {old}",
		(*Search).renewal},
	lockExpires: {"the attempt expires on node {A}, server {B}", func(_ *Search, w *State, e event) {
		w.at(e).Expired = true
	}},
	lockEnds: {"the lock ends on node {A}, server {B}", func(_ *Search, w *State, e event) { w.at(e).Lock = 0 }},
	recordDropped: {"node {A}, server {B} drops the record of the lock", func(_ *Search, w *State, e event) {
		to := w.at(e)
		to.Last, to.Counter, to.Ended, to.Released = 0, 0, 0, 0
	}},

	nodeLost:         {"the server of node {A} restarts", (*Search).lose},
	addressMoves:     {"the address of node {A} moves to a new server", (*Search).replace},
	addressMovesBack: {"the address of node {A} moves back to server {B}", (*Search).moveBack},
	joinNode:         {"a join nonce is put on node {A}, server {B}", (*Search).join},
	rangeAssigned:    {"the log names the life of node {A}, server {B}", (*Search).assign},
	initSent:         {"init is sent to node {A}, server {B}", (*Search).sendInit},
	initArrives:      {"init arrives at node {A}, server {B}", (*Search).arriveInit},
	reportTo:         {"node {C}, server {D} reports for the recovery of node {A}, server {B}", (*Search).reportTo},
	reserveAt:        {"node {C}, server {D} stores the floor for node {A}, server {B}", (*Search).reserve},
	quarantineEnds: {"the quarantine of node {A}, server {B} ends; processes drop connections to old servers",
		(*Search).endQuarantine},
	advanceArrives: {"advance arrives at node {A}, server {B}", (*Search).advance},
	otherCall: {"a call for another lock brings the log's version to node {A}, server {B}",
		func(_ *Search, w *State, e event) { w.at(e).Version = w.Log.Version }},
	ceilingRaised: {"the log raises its ceiling, since node {A} approaches it", (*Search).raiseCeiling},
	nodeReports:   {"node {A}, server {B} reports that it has reached the goal", (*Search).report},

	setClosed:        {"the log closes its oldest set of lives", (*Search).closeSets},
	timeClosesSets:   {"time closes the sets of lives", (*Search).timeCloses},
	moveBegins:       {"the log begins a migration of the lock", (*Search).move},
	moveAborted:      {"the log aborts the migration", (*Search).abort},
	changeFinished:   {"the log finishes its change", (*Search).finish},
	fleetChanges:     {"the log begins to change the fleet", (*Search).changeFleet},
	correctnessGrant: {"a grant in correctness mode", (*Search).grant},
	backup: {"a backup of the log is taken", func(_ *Search, w *State, _ event) {
		w.Left.Backups--
		w.Saved = w.Log
	}},
	restored:                {"the log is restored from the backup", (*Search).restore},
	nodeReportsForReconcile: {"node {A} reports to the reconciling log", (*Search).reportForReconcile},
	reconciled:              {"the log reconciles with the reports", (*Search).reconcile},
	fleetForced:             {"the restored log is set to the fleet that its nodes name", (*Search).force},
}
