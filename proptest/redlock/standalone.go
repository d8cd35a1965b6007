package redlock

import (
	"math/bits"

	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// standaloneEvents yields the steps of the recovery of a server without a log. The process
// that recovers it may have old connections to servers that other addresses have left.
func (s *Search) standaloneEvents(w *State, n, m uint8, yield func(event)) {
	at := &w.Nodes[n].Servers[m]
	if at.Version != 0 || at.Gone {
		return
	}
	if at.Join == 0 {
		yield(event{joinNode, n, m, 0, 0})
		return
	}
	// What the old server of this node helped to grant must be below the floor. So the
	// floor is chosen when no process uses that server any more.
	waits := s.Replaced > 0 && !at.Waited && s.Broken != NoQuarantine
	if waits && (m == w.Nodes[n].Current || s.Broken == QuarantineFromFirstJoin) {
		yield(event{quarantineEnds, n, m, 0, 0})
	}
	if !waits || s.Broken == FloorBeforeQuarantine {
		s.floorEvents(w, n, m, yield)
	}
	if !waits && s.ready(at) {
		yield(event{initArrives, n, m, 0, 0})
	}
}

// floorEvents yields the reports for the floor of a server, and its reservations.
func (s *Search) floorEvents(w *State, n, m uint8, yield func(event)) {
	at := &w.Nodes[n].Servers[m]
	for other := range uint8(s.Nodes) {
		for o := range w.Nodes[other].Count {
			if other == n && o != m || w.Nodes[other].Servers[o].Gone {
				continue
			}
			if !at.Decided && at.Reporters>>other&1 == 0 {
				yield(event{reportTo, n, m, other, o})
			}
			if at.Decided && at.Reservers>>other&1 == 0 && s.Broken != NoReserve {
				yield(event{reserveAt, n, m, other, o})
			}
		}
	}
}

// joinStandalone puts a join nonce on an empty server, without a log.
func (s *Search) joinStandalone(w *State, to *server) {
	s.beginQuarantine(w, to)
	to.Join = 1
	to.restartQuarantine()
}

// endQuarantine ends the quarantine of a server: processes drop their connections to servers that have lost their
// addresses.
func (s *Search) endQuarantine(w *State, e event) {
	s.disconnect(w)
	w.at(e).Waited = true
}

// restartQuarantine starts the quarantine of a server again, and the choice of its floor with it.
func (to *server) restartQuarantine() {
	to.standaloneRecovery = standaloneRecovery{}
}

// reportTo passes the report of a server of another node to the recovery of a server, which
// runs recovery.StandaloneFloor once a quorum has reported.
func (s *Search) reportTo(w *State, e event) {
	to, report := w.at(e), w.Nodes[e.C].report(int(e.D))
	if _, ok := recovery.StandaloneFloor([]recovery.Report{report}); !ok {
		return
	}
	to.Reporters |= 1 << e.C
	to.Top = max(to.Top, top(report))
	reports := make([]recovery.Report, s.Nodes)
	for i := range reports {
		if to.Reporters>>i&1 == 1 {
			reports[i] = recovery.Report{Reached: true, Live: &recovery.State{Max: large(to.Top)}}
		}
	}
	if floor, ok := recovery.StandaloneFloor(reports); ok && floor > large(to.Top) {
		to.Decided, to.Target = true, to.Top+jump // any step is larger than what the attempts can use up
		if s.Broken == NoJump {
			to.Target = to.Top
		}
		to.Reporters, to.Top = 0, 0 // later reports can only raise it
	}
}

// top returns the largest token in a report.
func top(r recovery.Report) (t token) {
	for _, state := range []*recovery.State{r.Live, r.Former} {
		if state != nil {
			t = max(t, small(state.Max), small(state.Floor))
		}
	}
	return t
}

// reserve stores the floor of a server on a server of another node: a voter raises its own
// floor, an empty one the floor of its former life.
func (s *Search) reserve(w *State, e event) {
	to, at := w.at(e), &w.Nodes[e.C].Servers[e.D]
	target := to.Target
	switch {
	case at.Version != 0:
		s.load(at)
		s.state.Reserve(fleetNames[1], large(target))
		s.store(at)
	case at.Former.Known:
		at.Former.Floor = max(at.Former.Floor, target)
	default:
		return
	}
	to.Reservers |= 1 << e.C
}

// ready reports whether a standalone recovery may initialise its server.
func (s *Search) ready(to *server) bool {
	if to.Join == 0 || !to.Decided {
		return false
	}
	return s.Broken == NoReserve || bits.OnesCount8(to.Reservers) > s.Nodes/2
}

// initStandalone makes a server a voter, without a log.
func (s *Search) initStandalone(w *State, to *server) {
	s.quarantined(w, to)
	s.load(to)
	s.state.Init(0, &redisnode.Range{Join: joins[1], Version: 1, Fleet: fleetNames[1], Floor: large(to.Target),
		Ceiling: large(most), Reserved: large(to.Former.Floor)})
	s.store(to)
	to.Former, to.standaloneRecovery = former{}, standaloneRecovery{}
}
