package redlock

import "github.com/leased-project/leased/redlockadapter/recovery"

// replace moves an address to a new server. The old one keeps its state, and any process
// may keep its connections to it.
func (s *Search) replace(w *State, n int) {
	s.stale(w, n)
	at := &w.Nodes[n]
	was, former := *at.current(), at.Current+1
	is := at.begin()
	w.Left.Replaced--
	if s.Broken == CopiedData {
		s.keep(is, &was, all, former)
	}
}

// mayLeadBack reports whether an address may lead back to a server that it left. If time has dropped all connections
// to a server that votes, it may not: another one may have taken its place. This is an assumption of the protocol.
func (s *Search) mayLeadBack(to *server) bool {
	return !to.Gone || s.Broken == BackAfterTime || s.Standalone && to.Version == 0
}

// moveBack moves an address back to a server that it left. Nobody looked at the server meanwhile, so its quarantine
// starts again.
func (s *Search) moveBack(w *State, n int, m uint8) {
	at := &w.Nodes[n]
	at.Current, at.Servers[m].Gone = m, false
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

// open appends the present set of lives to the open ones. It returns false if there are
// too many.
func (s *Search) open(w *State) bool {
	some := false
	for n := range s.Nodes {
		some = some || w.Nodes[n].Log.Life != 0
	}
	if !some {
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

// closeOldest drops the oldest open set.
func (s *Search) closeOldest(w *State) {
	copy(w.Open[:], w.Open[1:])
	w.Open[maxOpen-1] = 0
	for n := range s.Nodes {
		lives := &w.Nodes[n].Open
		copy(lives[:], lives[1:])
		lives[maxOpen-1] = 0
	}
}

// clearLives forgets all lives, ranges and open sets.
func (s *Search) clearLives(w *State) {
	w.Open = [maxOpen]uint8{}
	for n := range s.Nodes {
		w.Nodes[n].Log, w.Nodes[n].Open = member{}, [maxOpen]life{}
	}
}

// closing runs recovery.Set.Closing on an open set. If the leader is silenced, it reaches
// no node; otherwise it has heard of every server of every address.
func (s *Search) closing(w *State, i int, silenced bool) recovery.Closing {
	set := recovery.Set{Version: uint64(w.Open[i])}
	var reports []recovery.Report
	refusing := 0
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 0 {
			continue
		}
		named := lifeNames[w.Nodes[n].Open[i]]
		best := recovery.Report{}
		for m := range int(w.Nodes[n].Count) {
			r := w.Nodes[n].report(m)
			if silenced {
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
		if now := &w.Nodes[n]; now.Log.Life != now.Open[i] || now.Servers[now.Log.Life.server()].Version > w.Open[i] {
			refusing++
		}
	}
	if s.Broken == NewLifeCounts && refusing > len(reports)/2 {
		return recovery.Closed
	}
	return set.Closing(reports)
}

// unborn reports whether a server is the one that an open set names, and does not vote in
// that life yet, if that counts as a refusal. (Otherwise the last set closes only after the older ones: a
// life that refuses it and that they do not name was initialised when they were closed.)
func (s *Search) unborn(n *node, version uint8, i, m int) bool {
	named := n.Open[i]
	if s.Broken == OtherLifeRefuses && named != 0 && named != unknown && named.server() == m && n.Servers[m].Initialised != named.join() {
		return n.Servers[m].Version > version
	}
	return (s.Broken == UnbornRefuses || s.Broken == CloseLastSet) && named != 0 && named != unknown && named.server() == m && n.Servers[m].Version == 0
}

// closeSets drops the oldest open set if it is closed.
func (s *Search) closeSets(w *State) bool {
	if w.Open[0] == 0 || s.closing(w, 0, false) != recovery.Closed {
		return false
	}
	s.closeOldest(w)
	return true
}

// timeCloses drops the open sets that only time can close. It closes them if no process
// uses a connection to a server that its address no longer leads to.
func (s *Search) timeCloses(w *State) bool {
	if w.Open[0] == 0 {
		return false
	}
	for i, version := range w.Open {
		if version != 0 && s.closing(w, i, true) == recovery.Open {
			return false
		}
	}
	if s.Broken != TimeWithoutChecks {
		s.disconnect(w)
	}
	for w.Open[0] != 0 {
		s.closeOldest(w)
	}
	return true
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
		return last < 0 || s.closing(w, last, false) == recovery.Closed
	}
	return w.Open[0] == 0 || w.Open[0] >= version
}
