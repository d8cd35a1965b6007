package redlock

import (
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// start begins an attempt: the acquire is on its way to all nodes of the fleet.
func (s *Search) start(w *State, a int, under topology) {
	w.Attempts[a] = attempt{Started: true, Version: under.Version, Fleet: under.Fleet, Before: w.Top}
	if s.Broken == NewVersionOldPolicies {
		w.Attempts[a].Version = w.Log.Version
	}
	for n := range s.Nodes {
		if s.members(under.Fleet)>>n&1 == 1 {
			w.Nodes[n].Exchanges[a].Acquire = asked
		}
	}
}

// under returns what an attempt acts under.
func (a *attempt) under() topology { return topology{a.Version, a.Fleet} }

// arriveAcquire is the node's part of an acquire.
func (s *Search) arriveAcquire(w *State, a, n int) {
	x := &w.Nodes[n].Exchanges[a]
	says, t := s.run(w, acquire, a, n, w.Attempts[a].under(), 0)
	if x.Acquire == asked {
		x.Acquire, x.Says, x.Token = answered, says, t
	} else if !s.Copies {
		x.Acquire = done
	}
}

// arriveRaise is the node's part of a raise.
func (s *Search) arriveRaise(w *State, a, n int) {
	x := &w.Nodes[n].Exchanges[a]
	says, _ := s.run(w, raise, a, n, w.Attempts[a].under(), x.RaiseTo)
	if x.Raise == asked {
		x.Raise, x.RaiseOK = answered, says == quorum.Accepted
	} else {
		x.Raise, x.RaiseTo = unsent, 0
	}
}

// hear is the client's part: what it makes of the answer of a node. It runs
// quorum.Attempt.
func (s *Search) hear(w *State, a, n int, e kind) error {
	at := &w.Attempts[a]
	var votes [maxNodes]quorum.Vote
	var nodes [maxNodes]int
	count, self := 0, 0
	for i := range s.Nodes {
		if s.members(at.Fleet)>>i&1 == 0 {
			continue
		}
		if i == n {
			self = count
		}
		x := &w.Nodes[i].Exchanges[a]
		votes[count] = quorum.Vote{State: x.Vote, Token: large(x.Accepted), Raising: x.Raising}
		nodes[count] = i
		count++
	}
	running := quorum.Resume(votes[:count], large(at.Proposed), 0)
	x := &w.Nodes[n].Exchanges[a]
	var raises []quorum.Raise
	switch e {
	case hearAcquire:
		raises = running.Answer(self, quorum.Vote{State: x.Says, Token: large(x.Token)})
		x.Acquire, x.Says, x.Token = done, 0, 0
	case giveUp:
		raises = running.Answer(self, quorum.Vote{State: quorum.Failed})
		x.Acquire, x.Says, x.Token = after(x.Acquire), 0, 0
	case hearRaise:
		says := quorum.Vote{State: quorum.Refused}
		if x.RaiseOK {
			says = quorum.Vote{State: quorum.Accepted, Token: large(x.RaiseTo)}
		}
		raises = running.Raised(self, large(x.RaiseTo), says)
		x.Raise, x.RaiseTo, x.RaiseOK = unsent, 0, false
	}
	for i, v := range running.Votes() {
		x := &w.Nodes[nodes[i]].Exchanges[a]
		x.Vote, x.Accepted, x.Raising = v.State, small(v.Token), v.Raising
	}
	for _, r := range raises {
		x := &w.Nodes[nodes[r.Node]].Exchanges[a]
		x.Raise, x.RaiseTo, x.RaiseOK = asked, small(r.Token), false
	}
	at.Proposed = small(running.Proposed())
	outcome, t := running.Outcome(), small(running.Token())
	if s.Broken == NoWriteBack && at.Proposed != 0 {
		outcome, t = quorum.Granted, at.Proposed
	}
	return s.decided(w, a, outcome, t)
}

// decided ends an attempt. What is still on its way to a node stays.
func (s *Search) decided(w *State, a int, outcome quorum.Outcome, t token) error {
	if outcome == quorum.Wait {
		return nil
	}
	at := &w.Attempts[a]
	var err error
	if outcome == quorum.Granted {
		err = w.granted(t, at.Before)
	}
	at.Outcome, at.Token, at.Proposed, at.Before = outcome, t, 0, 0
	for n := range s.Nodes {
		x := &w.Nodes[n].Exchanges[a]
		*x = exchange{Acquire: after(x.Acquire), Raise: x.Raise, RaiseTo: x.RaiseTo}
		if x.Raise == asked && outcome != quorum.Granted { // a granted one can be raised at any moment
			x.Raise = astray
		} else {
			x.Raise, x.RaiseTo = unsent, 0
		}
	}
	return err
}

// after is where an acquire is when nobody waits for its answer any more.
func after(m message) message {
	switch m {
	case asked, astray:
		return astray
	case unsent:
		return unsent
	}
	return done
}
