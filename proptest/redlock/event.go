package redlock

import (
	"github.com/leased-project/leased/redlockadapter/quorum"
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
)

// event is one step. A is an attempt or a node, B a node, C a parameter.
type event struct {
	Kind    kind
	A, B, C uint8
}

// events calls yield with every possible next event. Some may have no effect.
func (s *Search) events(w *State, yield func(event)) {
	for a := range s.Attempts {
		if !w.Attempts[a].Started {
			for i, t := range w.Topologies {
				if t.Version != 0 {
					yield(event{startAttempt, uint8(a), 0, uint8(i)})
				}
			}
			break // attempts are interchangeable, so they start in order
		}
		for n := range s.Nodes {
			s.attemptEvents(w, uint8(a), uint8(n), yield)
		}
	}
	for n := range s.Nodes {
		s.nodeEvents(w, uint8(n), yield)
		if s.Standalone {
			s.standaloneEvents(w, uint8(n), yield)
		} else {
			s.keeperEvents(w, uint8(n), yield)
		}
	}
	if !s.Standalone {
		s.logEvents(w, yield)
	}
}

func (s *Search) attemptEvents(w *State, a, n uint8, yield func(event)) {
	at, x := &w.Attempts[a], &w.Nodes[n].Exchanges[a]
	if x.Acquire == sent || x.Acquire == abandoned {
		yield(event{acquireArrives, a, n, 0})
	}
	if x.Acquire == answered {
		yield(event{acquireAnswered, a, n, 0})
	}
	if s.Fail && (x.Acquire == sent || x.Acquire == answered) {
		yield(event{giveUp, a, n, 0})
	}
	if x.Raise == sent || x.Raise == abandoned {
		yield(event{raiseArrives, a, n, 0})
	}
	if x.Raise == answered {
		yield(event{raiseAnswered, a, n, 0})
	}
	if at.Outcome != quorum.Granted {
		return
	}
	if w.Nodes[n].Lock == a+1 {
		yield(event{lateRaise, a, n, 0})
	}
	for i, t := range w.Topologies {
		if s.Renew && t.Version != 0 && s.members(t.Fleet)>>n&1 == 1 {
			yield(event{renewArrives, a, n, uint8(i)})
		}
	}
}

func (s *Search) nodeEvents(w *State, n uint8, yield func(event)) {
	at := &w.Nodes[n]
	if at.Lock != 0 {
		yield(event{lockEnds, n, 0, 0})
	} else if s.Idle && at.Last != 0 {
		yield(event{recordDropped, n, 0, 0})
	}
	if w.Left.Losses > 0 && (at.Version != 0 || at.Join || at.Former) {
		yield(event{nodeLost, n, 0, uint8(nothing)})
		if s.Former && (at.Version != 0 || at.Former) {
			yield(event{nodeLost, n, 0, uint8(all)})
		}
		if s.Former && s.Standalone && at.Version != 0 && at.Max != at.Floor {
			yield(event{nodeLost, n, 0, uint8(early)})
		}
		if s.Broken == OldEvidence && at.Version != 0 {
			yield(event{nodeLost, n, 0, uint8(old)})
		}
	}
}

func (s *Search) standaloneEvents(w *State, n uint8, yield func(event)) {
	at := &w.Nodes[n]
	if at.Version != 0 {
		return
	}
	if !at.Join {
		yield(event{joinNode, n, 0, 0})
		return
	}
	for m := range uint8(s.Nodes) {
		if !at.Decided && at.Reporters>>m&1 == 0 {
			yield(event{reportTo, n, m, 0})
		}
		if at.Decided && at.Reservers>>m&1 == 0 && s.Broken != NoReserve {
			yield(event{reserveAt, n, m, 0})
		}
	}
	if s.ready(w, int(n)) {
		yield(event{initArrives, n, 0, 0})
	}
}

func (s *Search) keeperEvents(w *State, n uint8, yield func(event)) {
	at, l := &w.Nodes[n], &w.Log
	reconciling := l.Restored && !l.Reconciled
	if s.members(l.Fleet)>>n&1 == 1 {
		allowed := !reconciling || s.Broken == RestoreRecoversFirst
		if (w.Left.Ranges > 0 || s.Broken == JoinNonceTwice) && allowed && at.Range != sent {
			yield(event{joinNode, n, 0, 0})
		}
		if reconciling {
			yield(event{nodeReportsForReconcile, n, 0, 0})
		} else if l.changing() {
			yield(event{nodeReports, n, 0, 0})
		}
	}
	if at.Range == sent && w.Left.Ranges > 0 && (!reconciling || s.Broken == RestoreRecoversFirst) {
		yield(event{rangeAssigned, n, 0, 0})
	}
	if at.Range == answered {
		yield(event{initArrives, n, 0, 0})
	}
	if at.Version != 0 {
		if !reconciling {
			yield(event{advanceArrives, n, 0, 0})
		}
		if s.Raise && w.Left.Ranges > 0 && !reconciling {
			yield(event{ceilingRaised, n, 0, 0})
		}
		if s.Others && at.Version < l.Version && at.Fleet == l.Fleet && l.Ready && l.NextFleet == 0 {
			yield(event{otherCall, n, 0, 0})
		}
		if s.Late {
			yield(event{advanceArrives, n, 0, 1})
		}
		if s.Broken == InitOldVersion {
			yield(event{advanceArrives, n, 0, 2})
		}
	}
}

func (s *Search) logEvents(w *State, yield func(event)) {
	l := &w.Log
	reconciling := l.Restored && !l.Reconciled
	if w.Left.Moves > 0 && !l.changing() && !reconciling {
		yield(event{moveBegins, 0, 0, 0})
	}
	if w.Left.Aborts > 0 && l.Next != none && !l.Reconciled {
		yield(event{moveAborted, 0, 0, 0})
	}
	if w.Left.Fleets > 0 && !l.changing() && !reconciling {
		yield(event{fleetChanges, 0, 0, 0})
	}
	if l.changing() && !reconciling && s.met(w) {
		yield(event{changeFinished, 0, 0, 0})
	}
	if w.Left.Grants > 0 && s.served(l) {
		yield(event{correctnessGrant, 0, 0, 0})
	}
	if w.Left.Backups > 0 && !l.Restored {
		yield(event{backup, 0, 0, 0})
	}
	if w.Left.Restores > 0 && w.Left.Backups == 0 {
		yield(event{restored, 0, 0, 0})
	}
	if reconciling {
		yield(event{reconciled, 0, 0, 0})
	}
}

// apply executes an event. It returns false if the event has no effect.
func (s *Search) apply(w *State, e event) (bool, error) {
	a, n := int(e.A), int(e.A)
	switch e.Kind {
	case startAttempt:
		s.start(w, a, w.Topologies[e.C])
	case acquireArrives:
		s.arriveAcquire(w, a, int(e.B))
	case raiseArrives:
		s.arriveRaise(w, a, int(e.B))
	case acquireAnswered, giveUp, raiseAnswered:
		return true, s.answer(w, a, int(e.B), e.Kind)
	case lateRaise, renewArrives:
		was, op, under := w.Nodes[e.B], raise, w.Attempts[a].under()
		if e.Kind == renewArrives {
			op, under = renew, w.Topologies[e.C]
		}
		s.run(w, op, a, int(e.B), under, w.Attempts[a].Token)
		return was != w.Nodes[e.B], nil
	case lockEnds:
		w.Nodes[n].Lock = 0
	case recordDropped:
		w.Nodes[n].Last = 0
	case nodeLost:
		w.Left.Losses--
		s.lose(w, n, evidence(e.C))
	case joinNode:
		if s.Standalone {
			s.joinStandalone(w, n)
			return true, nil
		}
		return s.join(w, n), nil
	case rangeAssigned:
		s.assign(w, n)
	case initArrives:
		if s.Standalone {
			s.initStandalone(w, n)
			return true, nil
		}
		return s.arriveInit(w, n), nil
	case advanceArrives:
		switch e.C {
		case 1:
			return s.advance(w, n, &w.Earlier), nil
		case 2: // the ceiling alone
			return s.advance(w, n, &register{Version: w.Nodes[n].Version, Fleet: w.Log.Fleet, Ceiling: w.Log.Ceiling}), nil
		}
		return s.advance(w, n, &w.Log), nil
	case otherCall:
		w.Nodes[n].Version = w.Log.Version
	case reportTo:
		return s.reportTo(w, n, int(e.B)), nil
	case reserveAt:
		return s.reserve(w, n, int(e.B)), nil
	default:
		return s.applyLog(w, e)
	}
	return true, nil
}

// applyLog executes an event of the log.
func (s *Search) applyLog(w *State, e event) (bool, error) {
	switch e.Kind {
	case nodeReports:
		return s.report(w, int(e.A)), nil
	case nodeReportsForReconcile:
		return s.reportForReconcile(w, int(e.A)), nil
	case ceilingRaised:
		return s.raiseCeiling(w, int(e.A)), nil
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
