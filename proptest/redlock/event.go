package redlock

import (
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

// apply executes an event. It returns false if the event has no effect.
func (s *Search) apply(w *State, e event) (bool, error) {
	switch e.Kind {
	case startAttempt:
		return true, s.start(w, int(e.A), e.B, e.C)
	case acquireArrives:
		return true, s.arriveAcquire(w, int(e.A), int(e.B), e.C)
	case raiseArrives:
		s.arriveRaise(w, int(e.A), int(e.B), e.C)
		return true, nil
	case acquireAnswered, giveUp, raiseAnswered:
		return true, s.answer(w, int(e.A), int(e.B), e.Kind)
	case lateRaise, renewArrives, spreadArrives:
		to, op, under := &w.Nodes[e.B].Servers[e.C], raise, w.Attempts[e.A].under()
		switch e.Kind {
		case renewArrives:
			op, under = renew, w.Topologies[e.D]
		case spreadArrives:
			op = acquire
		}
		was := *to
		s.run(w, op, int(e.A), to, under, w.Attempts[e.A].Token)
		return was != *to, nil
	case releaseArrives:
		return s.release(w, int(e.A), int(e.B), int(e.C), true), nil
	case breakArrives:
		return s.breakAt(w, int(e.A), int(e.B), int(e.C), e.D), nil
	case breakChecked:
		x, current := &w.Nodes[e.B].Exchanges[e.A], w.Nodes[e.B].Current+1
		changed := x.Checked != current
		x.Checked = current
		return changed, nil
	case renewalRound:
		return s.renewal(w, int(e.A), e.B, e.C, e.D)
	case restAsked, grantSpread, attemptEnds, endArrives:
		return s.applyClient(w, e)
	}
	if s.Standalone {
		if changed, ok := s.applyStandalone(w, e); ok {
			return changed, nil
		}
	}
	return s.applyNode(w, e)
}

// applyStandalone executes an event of a recovery without a log.
func (s *Search) applyStandalone(w *State, e event) (changed, ok bool) {
	switch to := &w.Nodes[e.A].Servers[e.B]; e.Kind {
	case joinNode:
		s.joinStandalone(w, to)
	case initArrives:
		s.initStandalone(w, to)
	case reportTo:
		return s.reportTo(w, to, int(e.C), int(e.D)), true
	case reserveAt:
		return s.reserve(w, to, int(e.C), int(e.D)), true
	case quarantineEnds:
		s.disconnect(w)
		to.Waited = true
	default:
		return false, false
	}
	return true, true
}

// applyNode executes an event of a node, or of the leader with a node.
func (s *Search) applyNode(w *State, e event) (bool, error) {
	n, m, to := int(e.A), int(e.B), &w.Nodes[e.A].Servers[e.B]
	switch e.Kind {
	case lockEnds:
		to.Lock = 0
	case lockExpires:
		to.Expired = true
	case recordDropped:
		to.Last, to.Counter, to.Ended, to.Released = 0, 0, 0, 0
	case nodeLost:
		w.Left.Losses--
		s.lose(w, n, evidence(e.C))
	case addressMoves:
		s.replace(w, n)
	case addressMovesBack:
		s.moveBack(w, n, e.B)
	case joinNode:
		return s.join(w, to), nil
	case rangeAssigned:
		return s.assign(w, n, m), nil
	case initSent:
		return s.sendInit(w, n, m), nil
	case initArrives:
		return s.arriveInit(w, to), nil
	case advanceArrives:
		if e.C == 1 {
			return s.advance(w, to, &w.Earlier), nil
		}
		return s.advance(w, to, &w.Log), nil
	case otherCall:
		to.Version = w.Log.Version
	case nodeReports:
		return s.report(w, n, m), nil
	case ceilingRaised:
		return s.raiseCeiling(w, n, m), nil
	default:
		return s.applyLog(w, e)
	}
	return true, nil
}

// applyLog executes an event of the log.
func (s *Search) applyLog(w *State, e event) (bool, error) {
	switch e.Kind {
	case nodeReportsForReconcile:
		return s.reportForReconcile(w, int(e.A)), nil
	case setClosed:
		return s.closeSets(w, e.C), nil
	case timeClosesSets:
		return s.timeCloses(w), nil
	case fleetForced:
		s.force(w)
	case moveBegins:
		s.move(w)
	case moveAborted:
		w.Left.Aborts--
		s.commit(w, func(l *register) { l.Next = none })
	case fleetChanges:
		s.changeFleet(w)
	case changeFinished:
		s.finish(w)
	case correctnessGrant:
		return true, s.grant(w)
	case backup:
		w.Left.Backups--
		w.Saved = w.Log
	case restored:
		s.restore(w)
	case reconciled:
		return s.reconcile(w), nil
	}
	return true, nil
}
