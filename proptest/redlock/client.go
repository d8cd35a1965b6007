package redlock

import (
	"math/bits"
	"slices"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// clientEvents yields the decisions of the client of an attempt that depend on time.
func (s *Search) clientEvents(w *State, a uint8, yield func(event)) {
	at := &w.Attempts[a]
	if !s.QuorumFirst || at.Ended {
		return
	}
	if at.Outcome == quorum.Wait {
		yield(event{restAsked, a, 0, 0, 0})
	}
	if at.Outcome == quorum.Granted && !at.Spread {
		yield(event{grantSpread, a, 0, 0, 0})
	}
	yield(event{attemptEnds, a, 0, 0, 0})
}

func (s *Search) attemptEvents(w *State, a, n uint8, yield func(event)) {
	at, to, x := &w.Attempts[a], &w.Nodes[n], &w.Nodes[n].Exchanges[a]
	s.targets(to, at.Topology, func(m uint8) {
		if x.Acquire == sent || x.Acquire == abandoned {
			yield(event{acquireArrives, a, n, m, 0})
		}
		if x.Raise == sent || x.Raise == abandoned {
			yield(event{raiseArrives, a, n, m, 0})
		}
		if x.Release == sent {
			yield(event{endArrives, a, n, m, 0})
		}
		if at.Outcome == quorum.Granted && to.Servers[m].Lock == a+1 && !s.QuorumFirst {
			yield(event{lateRaise, a, n, m, 0})
		}
	})
	if x.Acquire == answered {
		yield(event{acquireAnswered, a, n, 0, 0})
	}
	if s.Fail && (x.Acquire == sent || x.Acquire == answered) {
		yield(event{giveUp, a, n, 0, 0})
	}
	if x.Raise == answered {
		yield(event{raiseAnswered, a, n, 0, 0})
	}
	if !s.Renew || at.Outcome != quorum.Granted {
		return
	}
	s.targets(to, at.Topology, func(m uint8) { yield(event{spreadArrives, a, n, m, 0}) })
	for i, t := range w.Topologies {
		if t.Version != 0 && s.members(t.Fleet)>>n&1 == 1 {
			s.targets(to, uint8(i), func(m uint8) { yield(event{renewArrives, a, n, m, uint8(i)}) })
		}
	}
}

// askRest makes an attempt ask the nodes that it has not asked yet.
func (s *Search) askRest(w *State, e event) {
	s.step(w, e.A, func(core *quorum.Attempt, _ []int) quorum.Requests { return core.AskRest() })
}

// spreadGrant makes an attempt send its grant to the nodes that do not know it.
func (s *Search) spreadGrant(w *State, e event) {
	s.step(w, e.A, func(core *quorum.Attempt, _ []int) quorum.Requests { return core.SpreadGrant() })
}

// arriveEnd executes the release of an attempt on a server.
func (s *Search) arriveEnd(w *State, e event) {
	x := &w.Nodes[e.B].Exchanges[e.A]
	x.Release = done
	s.release(w, e, x.Refuses)
}

// start starts an attempt under a topology: it sends the acquire to the lives of the first nodes, or of all
// nodes if first is 0.
func (s *Search) start(w *State, e event) {
	first, under := e.B, w.Topologies[e.C]
	w.Attempts[e.A] = attempt{Started: true, Topology: e.C, Version: under.Version, Fleet: under.Fleet, Before: w.Top}
	if s.Broken == NewVersionOldPolicies {
		w.Attempts[e.A].Version = w.Log.Version
	}
	s.step(w, e.A, func(core *quorum.Attempt, nodes []int) quorum.Requests {
		ask := quorum.Nodes(0)
		for i, n := range nodes {
			if first == 0 || first>>n&1 == 1 {
				ask |= 1 << i
			}
		}
		return core.Ask(ask)
	})
}

// firsts yields the sets of nodes that an attempt may ask first: any quorum of the nodes of a fleet.
func (s *Search) firsts(fleet uint8, yield func(first uint8)) {
	if !s.QuorumFirst {
		yield(0)
		return
	}
	members := s.members(fleet)
	for first := range uint8(1) << s.Nodes {
		if first&^members == 0 && bits.OnesCount8(first) == quorum.Size(bits.OnesCount8(members)) {
			yield(first)
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

// arriveAcquire executes an acquire on a server. Once the attempt is granted, the acquire has the granted token.
func (s *Search) arriveAcquire(w *State, e event) {
	at, x := &w.Attempts[e.A], &w.Nodes[e.B].Exchanges[e.A]
	granted := token(0)
	if x.Informed {
		granted = at.Token
	}
	says, t := s.run(w, acquire, e.A, &w.Nodes[e.B].Servers[e.C], at.under(), granted)
	if x.Acquire == sent {
		x.Acquire, x.Answer, x.Token = answered, says, t
	} else if !s.Copies {
		x.Acquire = done
	}
	if x.Release == done && !x.Refuses {
		s.violated("an acquire of attempt %c arrives at node %d after its release, which did not refuse it",
			'A'+rune(e.A), e.B)
	}
}

// arriveRaise executes a raise on a server.
func (s *Search) arriveRaise(w *State, e event) {
	x := &w.Nodes[e.B].Exchanges[e.A]
	says, _ := s.run(w, raise, e.A, &w.Nodes[e.B].Servers[e.C], w.Attempts[e.A].under(), x.RaiseTo)
	if x.Raise == sent {
		x.Raise, x.RaiseOK = answered, says == quorum.Accepted
	} else {
		x.Raise, x.RaiseTo = unsent, 0
	}
}

// arriveLate executes another call of a granted attempt on a server. A renewal has the topology that its holder knows.
func (s *Search) arriveLate(w *State, e event) {
	at, op := &w.Attempts[e.A], raise
	under := at.under()
	switch e.Kind {
	case renewArrives:
		op, under = renew, w.Topologies[e.D]
	case spreadArrives:
		op = acquire
	}
	s.run(w, op, e.A, &w.Nodes[e.B].Servers[e.C], under, at.Token)
}

// step runs a step of the quorum.Attempt of an attempt, on the nodes of its fleet, and sends its requests.
func (s *Search) step(w *State, a uint8, do func(core *quorum.Attempt, nodes []int) quorum.Requests) {
	at := &w.Attempts[a]
	var votes [maxNodes]quorum.Vote
	var all [maxNodes]int
	nodes := all[:0]
	core := quorum.Attempt{Proposed: large(at.Proposed), Outcome: at.Outcome, Token: large(at.Token),
		Spread: at.Spread, Ended: at.Ended}
	for n := range s.Nodes {
		if s.members(at.Fleet)>>n&1 == 0 {
			continue
		}
		x, bit := &w.Nodes[n].Exchanges[a], quorum.Nodes(1)<<len(nodes)
		votes[len(nodes)] = quorum.Vote{State: x.Vote, Token: large(x.Accepted), Raising: x.Raising}
		switch x.Acquire {
		case unsent:
			core.Unasked |= bit
		case sent, answered:
			core.Pending |= bit
		}
		if x.Took {
			core.Accepted |= bit
		}
		if x.Late {
			core.Unanswered |= bit
		}
		if x.Informed {
			core.Informed |= bit
		}
		nodes = append(nodes, n)
	}
	core.Votes = votes[:len(nodes)]
	send := do(&core, nodes)
	for i, n := range nodes {
		x, v := &w.Nodes[n].Exchanges[a], core.Votes[i]
		x.Vote, x.Accepted, x.Raising = v.State, small(v.Token), v.Raising
		if s.QuorumFirst {
			x.Took, x.Late, x.Informed = core.Accepted.Has(i), core.Unanswered.Has(i), core.Informed.Has(i)
		}
		if send.Raise.Has(i) {
			x.Raise, x.RaiseTo, x.RaiseOK = sent, small(send.RaiseTo), false
		}
		if send.Acquire.Has(i) {
			x.Acquire = sent
		}
		if send.Acquire.Has(i) && w.Nodes[n].Topologies[at.Topology] == 0 { // no life votes
			x.Acquire, x.Vote = done, quorum.Failed
		}
	}
	at.Proposed, at.Spread, at.Ended = small(core.Proposed), core.Spread && s.QuorumFirst, core.Ended
	if at.Outcome != quorum.Wait {
		return
	}
	outcome, t := core.Outcome, small(core.Token)
	if s.Broken == NoWriteBack && at.Proposed != 0 {
		outcome, t = quorum.Granted, at.Proposed
	}
	s.decided(w, a, outcome, t)
}

// answer delivers the answer of a node to the client.
func (s *Search) answer(w *State, e event) {
	s.step(w, e.A, func(core *quorum.Attempt, nodes []int) quorum.Requests {
		x, self := &w.Nodes[e.B].Exchanges[e.A], slices.Index(nodes, int(e.B))
		was := *x
		switch e.Kind {
		case acquireAnswered:
			x.Acquire, x.Answer, x.Token = done, 0, 0
			return core.Answer(self, quorum.Vote{State: was.Answer, Token: large(was.Token)}, false)
		case giveUp:
			x.Acquire, x.Answer, x.Token = abandon(x.Acquire), 0, 0
			return core.Answer(self, quorum.Vote{State: quorum.Failed}, true)
		}
		says := quorum.Vote{State: quorum.Refused}
		if x.RaiseOK {
			says = quorum.Vote{State: quorum.Accepted, Token: large(x.RaiseTo)}
		}
		x.Raise, x.RaiseTo, x.RaiseOK = unsent, 0, false
		return core.Raised(self, large(was.RaiseTo), says, false)
	})
}

// end ends an attempt, at any time, and sends its releases. Every node that has the lock for it must get one,
// and refuse an acquire that is in flight.
func (s *Search) end(w *State, e event) {
	w.Attempts[e.A].Over = true
	s.step(w, e.A, func(core *quorum.Attempt, nodes []int) quorum.Requests {
		release, late := core.End()
		switch s.Broken {
		case ReleaseAcceptedOnly:
			release &= core.Accepted
		case NoLateCopies:
			late = 0
		}
		for i, n := range nodes {
			x := &w.Nodes[n].Exchanges[e.A]
			holds := slices.ContainsFunc(w.Nodes[n].Servers[:], func(m server) bool { return m.Lock == e.A+1 && !m.Gone })
			if (holds || x.Acquire == sent || x.Acquire == abandoned) && !release.Has(i) {
				s.violated("node %d gets no release of attempt %c", n, 'A'+rune(e.A))
			}
			if release.Has(i) {
				x.Release, x.Refuses = sent, late.Has(i)
			}
		}
		return quorum.Requests{}
	})
}

// decided records the outcome of an attempt. Messages to nodes stay in flight.
func (s *Search) decided(w *State, a uint8, outcome quorum.Outcome, t token) {
	if outcome == quorum.Wait {
		return
	}
	at := &w.Attempts[a]
	if outcome == quorum.Granted {
		s.checkGrant(w, t, at.Before)
	}
	at.Outcome, at.Token, at.Proposed, at.Before = outcome, t, 0, 0
	if s.QuorumFirst { // the client still takes answers
		return
	}
	for n := range s.Nodes {
		x := &w.Nodes[n].Exchanges[a]
		*x = exchange{Acquire: abandon(x.Acquire), Raise: x.Raise, RaiseTo: x.RaiseTo}
		if x.Raise == sent && outcome != quorum.Granted { // lateRaise covers granted attempts
			x.Raise = abandoned
		} else {
			x.Raise, x.RaiseTo = unsent, 0
		}
	}
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
