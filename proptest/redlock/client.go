package redlock

import (
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// start starts an attempt: it sends the acquire to the lives of a topology.
func (s *Search) start(w *State, a int, index uint8) {
	under := w.Topologies[index]
	w.Attempts[a] = attempt{Started: true, Topology: index, Version: under.Version, Fleet: under.Fleet, Before: w.Top}
	if s.Broken == NewVersionOldPolicies {
		w.Attempts[a].Version = w.Log.Version
	}
	for n := range s.Nodes {
		x := &w.Nodes[n].Exchanges[a]
		switch {
		case s.members(under.Fleet)>>n&1 == 0:
		case w.Nodes[n].Topologies[index] != 0:
			x.Acquire = sent
		default: // no life votes
			x.Acquire, x.Vote = done, quorum.Failed
		}
	}
}

// under returns the topology of an attempt.
func (a *attempt) under() topology { return topology{a.Version, a.Fleet} }

// targets calls yield with the servers that a call under a topology may reach at a node:
// the life that the topology names. Without lives it is any server to which a process
// still has a connection.
func (s *Search) targets(n *node, index uint8, yield func(server uint8)) {
	named := n.Topologies[index]
	if !s.Standalone && s.Broken != AttemptsByAddress && s.Broken != EmptyFromZero {
		if named != 0 {
			yield(uint8(named.server()))
		}
		return
	}
	for m := range n.Count {
		if m == n.Current || !n.Servers[m].Gone {
			yield(m)
		}
	}
}

// arriveAcquire executes an acquire on a server.
func (s *Search) arriveAcquire(w *State, a, n int, m uint8) {
	x := &w.Nodes[n].Exchanges[a]
	says, t := s.run(w, acquire, a, &w.Nodes[n].Servers[m], w.Attempts[a].under(), 0)
	if x.Acquire == sent {
		x.Acquire, x.Answer, x.Token = answered, says, t
	} else if !s.Copies {
		x.Acquire = done
	}
}

// arriveRaise executes a raise on a server.
func (s *Search) arriveRaise(w *State, a, n int, m uint8) {
	x := &w.Nodes[n].Exchanges[a]
	says, _ := s.run(w, raise, a, &w.Nodes[n].Servers[m], w.Attempts[a].under(), x.RaiseTo)
	if x.Raise == sent {
		x.Raise, x.RaiseOK = answered, says == quorum.Accepted
	} else {
		x.Raise, x.RaiseTo = unsent, 0
	}
}

// answer delivers the answer of a node to the client, which runs quorum.Attempt.
func (s *Search) answer(w *State, a, n int, e kind) error {
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
	case acquireAnswered:
		raises = running.Answer(self, quorum.Vote{State: x.Answer, Token: large(x.Token)})
		x.Acquire, x.Answer, x.Token = done, 0, 0
	case giveUp:
		raises = running.Answer(self, quorum.Vote{State: quorum.Failed})
		x.Acquire, x.Answer, x.Token = abandon(x.Acquire), 0, 0
	case raiseAnswered:
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
		x.Raise, x.RaiseTo, x.RaiseOK = sent, small(r.Token), false
	}
	at.Proposed = small(running.Proposed())
	outcome, t := running.Outcome(), small(running.Token())
	if s.Broken == NoWriteBack && at.Proposed != 0 {
		outcome, t = quorum.Granted, at.Proposed
	}
	return s.decided(w, a, outcome, t)
}

// decided ends an attempt. Messages to nodes stay in flight.
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
		*x = exchange{Acquire: abandon(x.Acquire), Raise: x.Raise, RaiseTo: x.RaiseTo}
		if x.Raise == sent && outcome != quorum.Granted { // lateRaise covers granted attempts
			x.Raise = abandoned
		} else {
			x.Raise, x.RaiseTo = unsent, 0
		}
	}
	return err
}

// abandon returns the state of an acquire whose client no longer waits.
func abandon(m message) message {
	switch m {
	case sent, abandoned:
		return abandoned
	case unsent:
		return unsent
	}
	return done
}
