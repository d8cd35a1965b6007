package redlock

import "github.com/leased-project/leased/redlockadapter/recovery"

// restore restores the log from the backup.
func (s *Search) restore(w *State, _ event) {
	w.Earlier, w.Log = w.Log, w.Saved
	w.Left.Restores--
	l := &w.Log
	l.Ready, l.Restored, l.Reconciled = false, true, false
	l.Last = max(l.Last, l.Ceiling) + jump
	if s.Broken != RestoreVersionBehind {
		l.Version += jump
	}
	s.clearLives(w)
	s.forgetReached(w)
	s.forgetReports(w)
	if s.Broken == RestoreWithoutReconcile {
		l.Ready, l.Restored = true, false
		for n := range s.Nodes {
			if at := &w.Nodes[n]; at.current().Version != 0 {
				at.Log.Life = lifeOf(int(at.Current), at.current().Initialised)
			}
		}
		s.publish(w)
	}
}

func (s *Search) forgetReports(w *State) {
	for n := range s.Nodes {
		w.Nodes[n].Reported, w.Nodes[n].ReportedLife = false, 0
	}
	w.ReportedVersion, w.ReportedCeiling, w.ReportedSuccessor, w.ReportedNewest = 0, 0, 0, 0
}

// reportForReconcile records the report of the server that a node leads to now.
func (s *Search) reportForReconcile(w *State, e event) {
	to := &w.Nodes[e.A]
	r := to.report(int(to.Current))
	for _, state := range []*recovery.State{r.Live, r.Former} {
		if state != nil && s.Broken == RetiredEvidence {
			state.Successor = ""
		}
	}
	found := recovery.Reconcile(fleetNames[w.Log.Fleet], []recovery.Report{r}, !w.Log.Restored)
	if to.Reported || found.Reporters == 0 && found.Successor == "" {
		return
	}
	to.Reported = true
	if found.Lives[0] != "" {
		to.ReportedLife = lifeOf(int(to.Current), to.current().Initialised)
	}
	successor, version := index(fleetNames[:], found.Successor), newest(fleetNames[w.Log.Fleet], r)
	switch {
	case version > w.ReportedNewest:
		w.ReportedNewest, w.ReportedSuccessor = version, successor
	case version == w.ReportedNewest:
		w.ReportedSuccessor = max(w.ReportedSuccessor, successor)
	}
	w.ReportedVersion = max(w.ReportedVersion, uint8(found.Version))
	w.ReportedCeiling = max(w.ReportedCeiling, small(found.Ceiling))
}

// newest returns the newest version of a fleet in a report.
func newest(fleet string, r recovery.Report) (version uint8) {
	for _, state := range []*recovery.State{r.Live, r.Former} {
		if state != nil && state.Fleet == fleet {
			version = max(version, uint8(state.Version))
		}
	}
	return version
}

// reported returns what the reports of a node for a reconciliation amount to.
func (s *Search) reported(w *State, n int) recovery.Report {
	at := &w.Nodes[n]
	if !at.Reported {
		return recovery.Report{}
	}
	r := recovery.Report{Reached: true}
	state := &recovery.State{Version: uint64(w.ReportedVersion), Fleet: fleetNames[w.Log.Fleet],
		Ceiling:   large(w.ReportedCeiling),
		Successor: fleetNames[w.ReportedSuccessor], Join: joins[at.ReportedLife.join()]}
	if at.ReportedLife != 0 {
		r.Server, r.Live = serverNames[at.ReportedLife.server()+1], state
	} else {
		r.Former = state
	}
	return r
}

// reconcile moves the log past the reports of a quorum, and names the lives that vote.
func (s *Search) reconcile(w *State, _ event) {
	var reports []recovery.Report
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 1 {
			reports = append(reports, s.reported(w, n))
		}
	}
	e := recovery.Reconcile(fleetNames[w.Log.Fleet], reports, !w.Log.Restored)
	if !e.Enough {
		return
	}
	s.clearLives(w)
	at := 0
	for n := range s.Nodes {
		if s.members(w.Log.Fleet)>>n&1 == 1 {
			if e.Lives[at] != "" {
				w.Nodes[n].Log.Life = w.Nodes[n].ReportedLife
			}
			w.Nodes[n].Open[0] = w.Nodes[n].ReportedLife
			if e.Past[at] == recovery.Unknown {
				w.Nodes[n].Open[0] = unknown
			}
			at++
		}
	}
	s.commit(w, func(l *register) {
		l.Version, l.Reconciled = max(l.Version, uint8(e.Version)), true
		if !l.Restored {
			l.Floor = max(l.Ceiling, small(e.Ceiling))
			l.Ceiling = l.Floor + jump
			return
		}
		if s.Broken != RestoreVersionBehind && s.Broken != ReconcileVersionBehind {
			l.Version += jump
		}
		l.Floor = max(l.Ceiling, small(e.Ceiling), l.Last) + jump
		l.Ceiling = l.Floor + jump
		l.Last = l.Ceiling + jump
	})
	w.Open[0] = w.Log.Version - 1
	if restored := w.Log.Restored; !restored || s.Broken == ForgottenSets {
		w.Open[0] = 0
		for n := range s.Nodes {
			w.Nodes[n].Open[0] = 0
		}
	}
	s.forgetReports(w)
}

// force sets the fleet of a restored log to the one that replaced its fleet, according to
// the nodes. The log must reconcile with that fleet.
func (s *Search) force(w *State, _ event) {
	s.commit(w, func(l *register) { l.Fleet, l.NextFleet = w.ReportedSuccessor, 0 })
	s.clearLives(w)
	s.forgetReports(w)
}
