package redlock

import (
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// goal returns the state that every node should reach, for the given nodes of the fleet.
func (s *Search) goal(w *State, from *register, nodes ...int) recovery.Goal {
	g := recovery.Goal{Version: uint64(from.Version), Fleet: fleetNames[from.Fleet], Floor: large(from.Floor),
		Ceiling:   large(from.Ceiling),
		Successor: fleetNames[from.NextFleet]}
	for _, n := range nodes {
		g.Lives = append(g.Lives, lifeNames[w.Nodes[n].Log.Life])
	}
	return g
}

// next returns the leader's next step for a server that a node leads it to.
func (s *Search) next(w *State, n, m int) recovery.Step {
	return s.goal(w, &w.Log, n).Next(0, w.Nodes[n].report(m))
}

// commit makes a new version of the log. It discards reports on the previous version and
// publishes the topology.
func (s *Search) commit(w *State, change func(*register)) {
	w.Earlier = w.Log
	change(&w.Log)
	w.Log.Version++
	s.forgetReached(w)
	s.publish(w)
}

func (s *Search) forgetReached(w *State) {
	for n := range s.Nodes {
		for m := range w.Nodes[n].Count {
			w.Nodes[n].Servers[m].Reached, w.Nodes[n].Servers[m].ReachedMax = false, 0
		}
	}
}

// publish adds the log's topology to those that clients may have.
func (s *Search) publish(w *State) {
	l := &w.Log
	changing := l.NextFleet != 0 && s.Broken != FleetServedWhileChanging
	if l.Mode != efficiency || l.Next != none || !l.Ready || changing {
		return
	}
	at := s.place(w, topology{l.Version, l.Fleet})
	if at < 0 {
		return
	}
	w.Topologies[at] = topology{l.Version, l.Fleet}
	for n := range s.Nodes {
		w.Nodes[n].Topologies[at] = w.Nodes[n].Log.Life
	}
}

// place returns the place of a topology: its own, a free one, or that of the oldest one
// that no attempt uses. It is -1 if there is none: no client ever hears of the topology.
func (s *Search) place(w *State, added topology) int {
	oldest := -1
	for i, t := range w.Topologies {
		if t.Version == 0 || t == added {
			return i
		}
		used := false
		for _, a := range w.Attempts {
			used = used || a.Started && int(a.Topology) == i || int(a.Breaking) == i+1
		}
		if !used && (oldest < 0 || t.Version < w.Topologies[oldest].Version) {
			oldest = i
		}
	}
	return oldest
}

// join puts a fresh join nonce on a server that the leader is connected to.
func (s *Search) join(w *State, e event) {
	to := w.at(e)
	if s.Standalone {
		s.joinStandalone(w, to)
		return
	}
	if to.Join == 0 {
		s.beginQuarantine(w, to)
	}
	s.load(to)
	nonce := to.Joins + 1
	if s.Broken == JoinNonceTwice {
		nonce = 1
	}
	j := redisnode.Join{Nonce: joins[nonce], Version: uint64(w.Log.Version), Fleet: fleetNames[w.Log.Fleet], Again: true}
	if reason, _ := s.state.PutJoin(0, j); reason != redisnode.Accepted {
		return
	}
	s.store(to)
	to.Joins = nonce
	if s.Broken != JoinNonceTwice { // an init with another nonce has no effect any more
		to.Init = call{}
	}
}

// assign is the log entry that names the life of a server and its join nonce.
func (s *Search) assign(w *State, e event) {
	to := &w.Nodes[e.A]
	named := lifeOf(int(e.B), w.at(e).Join)
	if to.Log.Life == named && to.Log.Version != 0 || !s.open(w) {
		return
	}
	top := token(0)
	for i := range s.Nodes {
		top = max(top, w.Nodes[i].current().Max)
	}
	s.commit(w, func(l *register) {
		to.Log = member{Life: named, Version: l.Version + 1, Floor: l.Floor}
		if s.Broken == EmptyFromOthers {
			to.Log.Floor = top
		}
		l.Ceiling = max(l.Ceiling, l.Floor+jump)
	})
	w.Left.Ranges--
}

// sendInit sends the floor to the server, when the older sets of lives are closed.
func (s *Search) sendInit(w *State, e event) {
	to, r := w.at(e), &w.Nodes[e.A].Log
	if r.Version != 0 && r.Life == lifeOf(int(e.B), to.Join) && s.mayInit(w, r.Version) {
		to.Init = call{Join: to.Join, Version: max(r.Version, w.Log.Version), Fleet: w.Log.Fleet, Floor: r.Floor,
			Ceiling: w.Log.Ceiling, Successor: w.Log.NextFleet}
	}
}

// raiseCeiling raises the log's ceiling if a node reports that it approaches it.
func (s *Search) raiseCeiling(w *State, e event) {
	to, needed := s.goal(w, &w.Log).RaiseCeiling([]recovery.Report{w.Nodes[e.A].report(int(e.B))})
	if needed {
		w.Log.Ceiling = max(w.Log.Ceiling, small(to))
		w.Left.Ranges--
	}
}

// arriveInit makes a server a voter if it has the join nonce.
func (s *Search) arriveInit(w *State, e event) {
	to := w.at(e)
	if s.Standalone {
		s.initStandalone(w, to)
		return
	}
	s.load(to)
	if s.Broken == InitWithoutJoin {
		s.state.Join = joins[to.Init.Join]
	}
	c := &to.Init
	r := redisnode.Range{Join: joins[c.Join], Version: uint64(c.Version), Fleet: fleetNames[c.Fleet],
		Floor: large(c.Floor), Ceiling: large(c.Ceiling), Successor: fleetNames[c.Successor]}
	if s.state.Init(0, &r).Reason != redisnode.Accepted {
		return
	}
	if s.Broken == OtherLifeRefuses { // init also lowers the version
		s.state.Version = r.Version
	}
	if to.Version == 0 {
		s.quarantined(w, to)
	}
	s.store(to)                                                    // a voter keeps the records of its locks
	to.Former = former{}                                           // init removes it
	if s.Broken != InitWithoutJoin && s.Broken != JoinNonceTwice { // else the message or the nonce is reused
		to.Init = call{}
	}
}

// advance brings a server to the goal of the log, or to that of its previous version.
func (s *Search) advance(w *State, e event) {
	from := &w.Log
	if e.C == 1 {
		from = &w.Earlier
	}
	if from.Version == 0 {
		return
	}
	g, to := s.goal(w, from), w.at(e)
	s.load(to)
	if s.state.Advance(g.Version, g.Fleet, g.Floor, g.Ceiling, g.Successor) == redisnode.Accepted {
		s.store(to)
	}
}

// report records that a server has reached the goal.
func (s *Search) report(w *State, e event) {
	to, report := w.at(e), w.Nodes[e.A].report(int(e.B))
	if !to.Reached && s.goal(w, &w.Log, int(e.A)).Met([]recovery.Report{report}) {
		to.Reached, to.ReachedMax = true, to.Max
	}
}

// met reports whether a quorum has reached the log's goal.
func (s *Search) met(w *State) bool { return s.granted(w) != fencing.None }

// granted returns the largest token that can have been granted before a quorum reached the log's goal, or None.
func (s *Search) granted(w *State) fencing.Token {
	var all [maxNodes]int
	nodes, some := all[:0], false
	reports := make([]recovery.Report, 0, maxNodes)
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 0 {
			continue
		}
		nodes = append(nodes, n)
		var r recovery.Report
		if named := w.Nodes[n].Log.Life; named != 0 && w.Nodes[n].Servers[named.server()].Reached {
			r, some = recovery.Report{Reached: true, Server: serverNames[named.server()+1],
				Live: &recovery.State{Join: joins[named.join()],
					Version: uint64(w.Log.Version), Fleet: fleetNames[w.Log.Fleet], Floor: large(w.Log.Floor),
					Max: large(w.Nodes[n].Servers[named.server()].ReachedMax)}}, true
		}
		reports = append(reports, r)
	}
	switch {
	case s.Broken == MoveWithoutPrepare:
		return large(w.Log.Ceiling)
	case s.Broken == FloorOnAFew && some:
		return large(w.Log.Ceiling)
	}
	return s.goal(w, &w.Log, nodes...).Granted(reports)
}

// move begins a migration of the lock to the other mode.
func (s *Search) move(w *State, _ event) {
	s.commit(w, func(l *register) {
		if l.Mode == efficiency {
			l.Next = correctness
			return
		}
		l.Next = efficiency
		l.Floor = max(l.Floor, l.Last)
		l.Ceiling = max(l.Ceiling, l.Last+jump)
	})
	w.Left.Moves--
}

// abort ends a migration of the lock, which keeps its mode.
func (s *Search) abort(w *State, _ event) {
	w.Left.Aborts--
	s.commit(w, func(l *register) { l.Next = none })
}

// finish completes a reconciliation, a change of fleet, or a migration.
func (s *Search) finish(w *State, _ event) {
	granted := small(s.granted(w))
	s.commit(w, func(l *register) {
		switch {
		case l.Reconciled:
			l.Ready, l.Restored, l.Reconciled = true, false, false
		case l.NextFleet != 0:
			l.Fleet, l.NextFleet = l.NextFleet, 0
			s.clearLives(w)
			floor := l.Floor
			l.Floor, l.Ready = l.Ceiling, false
			if s.Broken == FleetFloorBehind { // former members of this fleet still have its state
				l.Floor, l.Ready = floor, true
				for n := range s.Nodes {
					if at := &w.Nodes[n]; at.current().Fleet == l.Fleet {
						at.Log.Life = lifeOf(int(at.Current), at.current().Initialised)
					}
				}
			}
		case l.Next == correctness:
			l.Mode, l.Next = correctness, none
			if s.Broken != LastTokenBehind {
				l.Last = max(l.Last, granted)
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

// reconciling reports whether the log waits for the reports of the nodes of a fleet that
// it may not know: it was restored, or the fleet is new.
func (r *register) reconciling() bool { return !r.Ready && !r.Reconciled }

// changeFleet begins a change to the next fleet.
func (s *Search) changeFleet(w *State, _ event) {
	s.commit(w, func(l *register) { l.NextFleet = l.Fleet%uint8(len(s.Fleets)) + 1 })
	w.Left.Fleets--
}

// grant grants the lock in correctness mode.
func (s *Search) grant(w *State, _ event) {
	w.Log.Last++
	s.checkGrant(w, w.Log.Last, w.Top)
	w.Left.Grants--
	w.Issued[w.Left.Grants] = w.Log.Last
}

// served reports whether the lock may be granted in correctness mode.
func (s *Search) served(l *register) bool {
	return l.Mode == correctness && l.Next == none && (!l.Restored || s.Broken == RestoreServesCorrectness)
}
