package redlock

import (
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// goal returns the state that every node should reach.
func (r *register) goal() recovery.Goal {
	return recovery.Goal{Version: uint64(r.Version), Fleet: fleetNames[r.Fleet], Floor: large(r.Floor), Ceiling: large(r.Ceiling)}
}

// commit makes a new version of the log. It discards reports on the previous version and
// publishes the topology.
func (s *Search) commit(w *State, change func(*register)) {
	w.Earlier = w.Log
	change(&w.Log)
	w.Log.Version++
	for n := range s.Nodes {
		w.Nodes[n].Reached = false
	}
	s.publish(w)
}

// publish adds the log's topology to those that clients may have.
func (s *Search) publish(w *State) {
	l := &w.Log
	changing := l.NextFleet != 0 && s.Broken != FleetServedWhileChanging
	if l.Mode != efficiency || l.Next != none || !l.Ready || changing {
		return
	}
	for i := range w.Topologies {
		if t := &w.Topologies[i]; t.Version == 0 || *t == (topology{l.Version, l.Fleet}) {
			*t = topology{l.Version, l.Fleet}
			return
		}
	}
	panic("too many topologies: reduce the bounds of the search")
}

// join puts a join nonce on a node that is not a voter of the log's fleet.
func (s *Search) join(w *State, n int) bool {
	to := &w.Nodes[n]
	s.load(to)
	s.state.Join = ""
	if s.state.PutJoin(0, "join", uint64(w.Log.Version), fleetNames[w.Log.Fleet], 0) != redisnode.Accepted {
		return false
	}
	s.store(to)
	if s.Broken == JoinNonceTwice && to.Range == answered { // with its range
		return true
	}
	to.Range, to.RangeVersion, to.RangeFleet, to.RangeFloor, to.RangeCeiling = sent, w.Log.Version, w.Log.Fleet, 0, 0
	return true
}

// assign is the log entry that assigns a range to the join nonce.
func (s *Search) assign(w *State, n int) {
	to := &w.Nodes[n]
	to.Range, to.RangeVersion = answered, w.Log.Version
	to.RangeFloor = w.Log.Ceiling
	switch s.Broken {
	case InitOldVersion:
		to.RangeVersion = max(1, w.Log.Version-1)
	case EmptyFromOthers:
		to.RangeFloor = 0
		for _, other := range w.Nodes[:s.Nodes] {
			to.RangeFloor = max(to.RangeFloor, other.Max)
		}
		to.RangeCeiling = w.Log.Ceiling
		w.Left.Ranges--
		return
	case RangeTwice:
		to.RangeFloor, to.RangeCeiling = w.Log.Ceiling-jump, w.Log.Ceiling
		w.Left.Ranges--
		return
	}
	w.Log.Ceiling += jump
	to.RangeCeiling = w.Log.Ceiling
	w.Left.Ranges--
}

// raiseCeiling raises the log's ceiling if a node reports that it approaches it.
func (s *Search) raiseCeiling(w *State, n int) bool {
	to, needed := w.Log.goal().RaiseCeiling([]recovery.Report{w.Nodes[n].report()})
	if needed {
		w.Log.Ceiling = max(w.Log.Ceiling, small(to))
		w.Left.Ranges--
	}
	return needed
}

// arriveInit makes a node a voter if it has the join nonce.
func (s *Search) arriveInit(w *State, n int) bool {
	to := &w.Nodes[n]
	s.load(to)
	if s.Broken == InitWithoutJoin && to.Version == 0 {
		s.state.Join = "join"
	}
	r := redisnode.Range{Join: "join", Version: uint64(to.RangeVersion), Fleet: fleetNames[to.RangeFleet], Floor: large(to.RangeFloor), Ceiling: large(to.RangeCeiling)}
	if s.state.Init(0, &r).Reason != redisnode.Accepted {
		return false
	}
	s.store(to) // a voter of another fleet keeps the records of its locks
	to.Former, to.FormerVersion, to.FormerMax, to.FormerFloor, to.FormerCeiling = false, 0, 0, 0, 0
	if s.Broken != InitWithoutJoin && s.Broken != JoinNonceTwice { // else the message or the nonce is reused
		to.Range, to.RangeVersion, to.RangeFleet, to.RangeFloor, to.RangeCeiling = unsent, 0, 0, 0, 0
	}
	return true
}

// advance brings a node to the goal of a log.
func (s *Search) advance(w *State, n int, from *register) bool {
	if from.Version == 0 {
		return false
	}
	to, g := &w.Nodes[n], from.goal()
	was := *to
	s.load(to)
	if s.state.Advance(g.Version, g.Fleet, g.Floor, g.Ceiling) != redisnode.Accepted {
		return false
	}
	s.store(to)
	return *to != was
}

// report records that a node has reached the goal.
func (s *Search) report(w *State, n int) bool {
	to := &w.Nodes[n]
	if to.Reached || !w.Log.goal().Met([]recovery.Report{to.report()}) {
		return false
	}
	to.Reached = true
	return true
}

// met reports whether a quorum has reached the log's goal.
func (s *Search) met(w *State) bool {
	g := w.Log.goal()
	reports := make([]recovery.Report, 0, maxNodes)
	some := false
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 0 {
			continue
		}
		var r recovery.Report
		if w.Nodes[n].Reached {
			r, some = recovery.Report{Reached: true, Live: &recovery.State{Version: g.Version, Fleet: g.Fleet, Floor: g.Floor}}, true
		}
		reports = append(reports, r)
	}
	switch {
	case s.Broken == MoveWithoutPrepare:
		return true
	case s.Broken == FloorOnAFew && some:
		return true
	}
	return g.Met(reports)
}

// move begins a migration of the lock to the other mode.
func (s *Search) move(w *State) {
	s.commit(w, func(l *register) {
		if l.Mode == efficiency {
			l.Next = correctness
			return
		}
		l.Next = efficiency
		l.Floor = max(l.Floor, l.Last)
		l.Ceiling = max(l.Ceiling, l.Last) + jump
	})
	w.Left.Moves--
}

// finish completes a reconciliation, a change of fleet, or a migration.
func (s *Search) finish(w *State) {
	s.commit(w, func(l *register) {
		switch {
		case l.Reconciled:
			l.Ready, l.Restored, l.Reconciled = true, false, false
		case l.NextFleet != 0:
			l.Fleet, l.NextFleet = l.NextFleet, 0
			if s.Broken != FleetFloorBehind { // former members of this fleet still have its state
				l.Floor, l.Ready, l.Reconciled = l.Ceiling, false, true
			}
		case l.Next == correctness:
			l.Mode, l.Next = correctness, none
			if s.Broken != LastTokenBehind {
				l.Last = max(l.Last, l.Ceiling)
			}
		default:
			l.Mode, l.Next = efficiency, none
		}
	})
}

// changing reports whether a change waits for a quorum.
func (r *register) changing() bool {
	return r.Next != none || r.NextFleet != 0 || r.Reconciled
}

// changeFleet begins a change to the next fleet.
func (s *Search) changeFleet(w *State) {
	s.commit(w, func(l *register) { l.NextFleet = l.Fleet%uint8(len(s.Fleets)) + 1 })
	w.Left.Fleets--
}

// grant grants the lock in correctness mode.
func (s *Search) grant(w *State) error {
	w.Log.Last++
	t := w.Log.Last
	if err := w.granted(t, w.Top); err != nil {
		return err
	}
	w.Left.Grants--
	w.Issued[w.Left.Grants] = t
	return nil
}

// served reports whether the lock may be granted in correctness mode.
func (s *Search) served(l *register) bool {
	return l.Mode == correctness && l.Next == none && (!l.Restored || s.Broken == RestoreServesCorrectness)
}

// restore restores the log from the backup.
func (s *Search) restore(w *State) {
	w.Earlier, w.Log = w.Log, w.Saved
	w.Left.Restores--
	l := &w.Log
	l.Ready, l.Restored, l.Reconciled = false, true, false
	l.Last = max(l.Last, l.Ceiling) + jump
	if s.Broken != RestoreVersionBehind {
		l.Version += jump
	}
	for n := range s.Nodes {
		w.Nodes[n].Reached, w.Nodes[n].Reported = false, false
	}
	w.ReportedVersion, w.ReportedCeiling = topology{}, 0
	if s.Broken == RestoreWithoutReconcile {
		l.Ready, l.Restored = true, false
		s.publish(w)
	}
}

// reportForReconcile records the report of a node for a reconciliation.
func (s *Search) reportForReconcile(w *State, n int) bool {
	to := &w.Nodes[n]
	version, ceiling, ok := recovery.Reconcile([]recovery.Report{to.report()}, false)
	if to.Reported || !ok {
		return false
	}
	to.Reported = true
	w.ReportedVersion.Version = max(w.ReportedVersion.Version, uint8(version))
	w.ReportedCeiling = max(w.ReportedCeiling, small(ceiling))
	return true
}

// reconcile moves the log past the reports of a quorum.
func (s *Search) reconcile(w *State) bool {
	var reports []recovery.Report
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 0 {
			continue
		}
		r := recovery.Report{}
		if w.Nodes[n].Reported {
			r = recovery.Report{Reached: true, Live: &recovery.State{Version: uint64(w.ReportedVersion.Version), Ceiling: large(w.ReportedCeiling)}}
		}
		reports = append(reports, r)
	}
	version, ceiling, ok := recovery.Reconcile(reports, false)
	if !ok {
		return false
	}
	s.commit(w, func(l *register) {
		l.Version = max(l.Version, uint8(version))
		if s.Broken != RestoreVersionBehind && s.Broken != ReconcileVersionBehind {
			l.Version += jump
		}
		l.Floor = max(l.Ceiling, small(ceiling), l.Last) + jump
		l.Ceiling = l.Floor + jump
		l.Last = l.Ceiling + jump
		l.Reconciled = true
	})
	for n := range s.Nodes {
		w.Nodes[n].Reported = false
	}
	w.ReportedVersion, w.ReportedCeiling = topology{}, 0
	return true
}
