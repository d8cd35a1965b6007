package redlock

import (
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// The nodes that a leader has heard of.
const (
	nobody   uint8 = 0
	everyone uint8 = 1<<maxNodes - 1
)

// replace moves an address to a new server. The old one keeps its state, and any process
// may keep its connections to it.
func (s *Search) replace(w *State, e event) {
	at := &w.Nodes[e.A]
	was, former := *at.current(), at.Current+1
	is := at.begin()
	w.Left.Replaced--
	if s.Broken == CopiedData {
		s.keep(is, &was, all, former)
	}
}

// mayLeadBack reports whether an address may lead back to a server that it left. If time has dropped all connections
// to a server that votes, it may not: another one may have taken its place. For the end of leases, it may not once the
// quarantine of another server has passed, and the log has named that one. These are assumptions of the protocol.
func (s *Search) mayLeadBack(n *node, m uint8) bool {
	to := &n.Servers[m]
	if s.Leases && !s.Standalone && n.Log.Life.server() != int(m) && s.Broken != BackAfterQuarantine {
		return false
	}
	return !to.Gone || s.Broken == BackAfterTime || s.Standalone && to.Version == 0
}

// moveBack moves an address back to a server that it left. Nobody looked at the server meanwhile, so its quarantine
// starts again, and so does that of the server that the address leaves.
func (s *Search) moveBack(w *State, e event) {
	at := &w.Nodes[e.A]
	for i := range at.Count {
		s.beginQuarantine(w, &at.Servers[i])
	}
	at.Current, at.Servers[e.B].Gone = e.B, false
	if s.Broken != QuarantineFromFirstJoin {
		at.current().restartQuarantine()
	}
	w.Left.Back--
}

// disconnect drops all connections to servers that their addresses no longer lead to, with
// the requests in flight. The answers of these servers may still be late.
func (s *Search) disconnect(w *State) {
	for n := range s.Nodes {
		at := &w.Nodes[n]
		for m := range at.Count {
			switch {
			case m == at.Current:
			case s.Broken == BackAfterTime || s.Standalone && w.Left.Back > 0: // the address may lead back to it
				at.Servers[m].Gone = true
			default:
				at.Servers[m] = server{Gone: true, Reached: at.Servers[m].Reached, Joins: at.Servers[m].Joins}
			}
		}
	}
}

// open appends the present set of lives to the open ones, if a client may have used it. It returns false if there are
// too many.
func (s *Search) open(w *State) bool {
	if !w.Log.Ready {
		return true
	}
	for i := range w.Open {
		if w.Open[i] == 0 {
			w.Open[i] = w.Log.Version
			for n := range s.Nodes {
				w.Nodes[n].Open[i] = w.Nodes[n].Log.Life
			}
			return true
		}
	}
	return false
}

// waits reports whether a life waits for a set to be closed.
func (w *State) waits(r *member) bool {
	return r.Version != 0 && w.Open[0] != 0 && w.Open[0] < r.Version
}

// closeOldest closes the oldest open set and gives a floor to the lives that waited for it.
// granted is the largest token that the set can have granted, or None if that is unknown.
func (s *Search) closeOldest(w *State, granted fencing.Token) {
	var waited [maxNodes]bool
	for n := range s.Nodes {
		waited[n] = w.waits(&w.Nodes[n].Log)
	}
	copy(w.Open[:], w.Open[1:])
	w.Open[maxOpen-1] = 0
	for n := range s.Nodes {
		lives := &w.Nodes[n].Open
		copy(lives[:], lives[1:])
		lives[maxOpen-1] = 0
	}
	floor, ceiling := max(w.Log.Floor, small(granted)), w.Log.Ceiling
	if granted == fencing.None {
		floor, ceiling = w.Log.Ceiling, w.Log.Ceiling+jump
	}
	for n := range s.Nodes {
		if r := &w.Nodes[n].Log; waited[n] && !w.waits(r) && s.Broken != EmptyFromOthers {
			r.Floor, w.Log.Ceiling = floor, ceiling
		}
	}
}

// clearLives forgets all lives, ranges and open sets.
func (s *Search) clearLives(w *State) {
	w.Open = [maxOpen]uint8{}
	for n := range s.Nodes {
		w.Nodes[n].Log, w.Nodes[n].Open = member{}, [maxOpen]life{}
	}
}

// closing runs recovery.Set.Closing and Granted on an open set. The leader has heard of every server of these nodes.
func (s *Search) closing(w *State, i int, heard uint8) (recovery.Closing, fencing.Token) {
	set := recovery.Set{Version: uint64(w.Open[i])}
	var reports []recovery.Report
	refusing, top := 0, fencing.None
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 0 {
			continue
		}
		named := lifeNames[w.Nodes[n].Open[i]]
		best := recovery.Report{}
		for m := range int(w.Nodes[n].Count) {
			r := w.Nodes[n].report(m)
			if heard>>n&1 == 0 {
				break
			}
			if m == int(w.Nodes[n].Current) && !best.Reached {
				best = r
			}
			one := recovery.Set{Version: set.Version, Lives: []string{named}}
			if one.Closing([]recovery.Report{r}) == recovery.Closed || s.unborn(&w.Nodes[n], w.Open[i], i, m) {
				best = r
			}
		}
		if s.unborn(&w.Nodes[n], w.Open[i], i, w.Nodes[n].Open[i].server()) {
			named = "" // as if it refused
		}
		set.Lives, reports = append(set.Lives, named), append(reports, best)
		if best.Live != nil {
			top = max(top, best.Live.Max)
		}
		if now := &w.Nodes[n]; now.Log.Life != now.Open[i] || now.Servers[now.Log.Life.server()].Version > w.Open[i] {
			refusing++
		}
	}
	if s.Broken == NewLifeCounts && refusing > len(reports)/2 {
		return recovery.Closed, set.Granted(reports)
	}
	granted := set.Granted(reports)
	if s.Broken == EndedLivesReport { // those that are left are enough
		granted = max(1, top)
	}
	return set.Closing(reports), granted
}

// unborn reports whether a server is the one that an open set names, and does not vote in
// that life yet, if that counts as a refusal. (Otherwise the last set closes only after the older ones: a
// life that refuses it and that they do not name was initialised when they were closed.)
func (s *Search) unborn(n *node, version uint8, i, m int) bool {
	named := n.Open[i]
	if s.Broken == OtherLifeRefuses && named != 0 && named != unknown && named.server() == m &&
		n.Servers[m].Initialised != named.join() {
		return n.Servers[m].Version > version
	}
	return (s.Broken == UnbornRefuses || s.Broken == CloseLastSet) && named != 0 && named != unknown &&
		named.server() == m && n.Servers[m].Version == 0
}

// closeSets drops the oldest open set if it is closed according to the nodes that the leader has heard of.
func (s *Search) closeSets(w *State, e event) {
	if w.Open[0] == 0 {
		return
	}
	if closing, granted := s.closing(w, 0, e.C); closing == recovery.Closed {
		s.closeOldest(w, granted)
	}
}

// timeCloses drops the open sets that only time can close. It closes them if no process
// uses a connection to a server that its address no longer leads to.
func (s *Search) timeCloses(w *State, _ event) {
	if w.Open[0] == 0 {
		return
	}
	for i, version := range w.Open {
		if version == 0 {
			continue
		}
		if closing, _ := s.closing(w, i, nobody); closing == recovery.Open {
			return
		}
	}
	if s.Broken != TimeWithoutChecks {
		s.disconnect(w)
	}
	for w.Open[0] != 0 {
		s.closeOldest(w, fencing.None)
	}
}

// mayInit reports whether the sets of lives that are older than a range are closed.
func (s *Search) mayInit(w *State, version uint8) bool {
	switch s.Broken {
	case InitBeforeClosing:
		return true
	case CloseLastSet:
		last := -1
		for i, open := range w.Open {
			if open != 0 && open < version {
				last = i
			}
		}
		if last < 0 {
			return true
		}
		closing, _ := s.closing(w, last, everyone)
		return closing == recovery.Closed
	}
	return w.Open[0] == 0 || w.Open[0] >= version
}
