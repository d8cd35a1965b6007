package redlock

import (
	"math/bits"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// The life of a lease after its grant. With Bounds.Leases a search has renewals, releases, breaks and
// expiries of granted attempts, and checks that
//
//   - a broken lease is not renewed;
//   - a lease survives the restart of its nodes, one at a time (Bounds.Maintenance);
//   - after a renewal on all nodes, a quorum of them tells any process the granted token.
//
// There is no time, except for one assumption. A quarantine is as long as a lease, so a lease that was not renewed
// between the first join of a server and its init is over for its holder.

// leaseEvents are the events of a granted attempt. Its holder, and whoever breaks it, may know any topology.
func (s *Search) leaseEvents(w *State, a uint8, yield func(event)) {
	at := &w.Attempts[a]
	if !s.Leases || at.Outcome == quorum.Wait {
		return
	}
	for n := range uint8(s.Nodes) {
		for m := range w.Nodes[n].Count {
			if !w.Nodes[n].Servers[m].Gone {
				s.endEvents(w, a, n, m, yield)
			}
		}
		s.breakEvents(w, a, n, yield)
	}
	if at.Outcome != quorum.Granted || at.Over {
		return
	}
	for mask := range uint8(1) << s.Nodes {
		if bits.OnesCount8(mask) < quorum.Size(s.Nodes) {
			continue
		}
		for i, t := range w.Topologies {
			if t.Version == 0 {
				continue
			}
			for old := range mask + 1 {
				if old&^mask == 0 && (old == 0 || s.Standalone && w.haveOld(old)) {
					yield(event{renewalRound, a, old, mask, uint8(i)})
				}
			}
		}
	}
}

// haveOld reports whether processes still have connections to former servers of all these nodes.
func (w *State) haveOld(nodes uint8) bool {
	for n := range w.Nodes {
		if nodes>>n&1 == 1 && w.Nodes[n].old() < 0 {
			return false
		}
	}
	return true
}

// old returns the latest server that the address has left and processes still have connections to, or -1.
func (n *node) old() int {
	for m := int(n.Count) - 1; m >= 0; m-- {
		if m != int(n.Current) && !n.Servers[m].Gone {
			return m
		}
	}
	return -1
}

// endEvents are the releases and expiries of an attempt on a server.
func (s *Search) endEvents(w *State, a, n, m uint8, yield func(event)) {
	to := &w.Nodes[n].Servers[m]
	kept := s.Maintenance && a == 0 // its holder renews in time, and does not release it
	if to.Lock == a+1 && !to.Expired && !kept {
		yield(event{lockExpires, n, m, 0, 0})
	}
	isTo := func(l life) bool { return l != 0 && l.server() == int(m) }
	named := s.Standalone || slices.ContainsFunc(w.Nodes[n].Topologies[:], isTo)
	if named && !kept {
		yield(event{releaseArrives, a, n, m, 0})
	}
}

// breakEvents are the steps of a break with a node. Its caller sends it under one topology, and again when a quorum has
// confirmed it, to the servers that the addresses then lead to.
func (s *Search) breakEvents(w *State, a, n uint8, yield func(event)) {
	at, to := &w.Attempts[a], &w.Nodes[n]
	if at.Outcome != quorum.Granted || at.Broken {
		return
	}
	for i, t := range w.Topologies {
		if t.Version == 0 || at.Breaking != uint8(i)+1 && w.Left.Breaks == 0 {
			continue
		}
		s.targets(to, uint8(i), func(m uint8) {
			if !to.Servers[m].Gone {
				yield(event{breakArrives, a, n, m, uint8(i)})
			}
		})
	}
	if at.Round == 2 {
		yield(event{breakChecked, a, n, 0, 0})
	}
}

// arriveBreak executes a break on a server, and counts its answer.
func (s *Search) arriveBreak(w *State, e event) {
	at := &w.Attempts[e.A]
	if at.Breaking != e.D+1 {
		at.Breaking = e.D + 1
		w.Left.Breaks--
		s.round(w, e.A, 1)
		if s.Broken == BreakInOneRound {
			at.Round = 2
		}
	}
	under := w.Topologies[e.D]
	end := redisnode.End{Nonce: nonces[e.A+1], Token: large(at.Token), Cause: redisnode.Broken,
		Wake: redisnode.WakeNone, Refuse: true, Version: uint64(under.Version), Fleet: fleetNames[under.Fleet]}
	switch reason := s.execute(&w.Nodes[e.B].Servers[e.C], e.A, end); {
	case reason == redisnode.Accepted:
	case reason == redisnode.Empty && s.Broken == BreakWithoutVotes:
	default:
		return
	}
	x := &w.Nodes[e.B].Exchanges[e.A]
	if at.Round == 2 && x.Checked != e.C+1 && s.Broken != BreakWithoutCheck { // a late copy
		return
	}
	x.Confirmed = true
	confirmed := 0
	for i := range s.Nodes {
		if w.Nodes[i].Exchanges[e.A].Confirmed {
			confirmed++
		}
	}
	switch {
	case confirmed < quorum.Size(s.Nodes):
	case at.Round == 1:
		s.round(w, e.A, 2)
	default:
		s.round(w, e.A, 0)
		at.Broken, at.Breaking = true, 0
	}
}

// checkBreak notes the server that an address leads to in the second round of a break.
func (s *Search) checkBreak(w *State, e event) {
	w.Nodes[e.B].Exchanges[e.A].Checked = w.Nodes[e.B].Current + 1
}

// round begins a round of a break.
func (s *Search) round(w *State, a, round uint8) {
	w.Attempts[a].Round = round
	for n := range s.Nodes {
		x := &w.Nodes[n].Exchanges[a]
		x.Confirmed, x.Checked = false, 0
	}
}

// release executes a release on a server, which refuses late copies of the attempt if refuse is set. An
// attempt that was not granted has no token.
func (s *Search) release(w *State, e event, refuse bool) {
	at := &w.Attempts[e.A]
	end := redisnode.End{Nonce: nonces[e.A+1], Cause: redisnode.Released, Wake: redisnode.WakeNone, Refuse: refuse}
	if at.Outcome == quorum.Granted {
		end.Token = large(at.Token)
	}
	at.Over = true // the holder does not renew it any more
	s.execute(&w.Nodes[e.B].Servers[e.C], e.A, end)
}

// execute executes a release or a break on a server.
func (s *Search) execute(to *server, a uint8, end redisnode.End) redisnode.Reason {
	holds := to.Lock == a+1
	s.load(to)
	_, reply := s.state.Release(0, s.locks, end)
	if s.Broken == EndingsByName {
		s.record.Ended = fencing.None
	}
	if s.Broken != EndingsWhereHeld || holds {
		s.store(to)
	}
	return reply.Reason
}

// renewal is a renewal on the nodes in mask, under a topology, of which quorum.Renewal decides. The others fail.
// Without a service it goes to the servers that the addresses lead to, and to former servers of the nodes in old.
func (s *Search) renewal(w *State, e event) {
	at, old, mask, under := &w.Attempts[e.A], e.B, e.C, e.D
	answers := quorum.Renewal{Nodes: s.Nodes, Failed: s.Nodes - bits.OnesCount8(mask)}
	for n := range s.Nodes {
		named := w.Nodes[n].Topologies[under]
		if mask>>n&1 == 0 {
			continue
		}
		to := &w.Nodes[n].Servers[named.server()]
		switch {
		case s.Standalone && old>>n&1 == 1:
			to = &w.Nodes[n].Servers[w.Nodes[n].old()]
		case s.Standalone:
			to = w.Nodes[n].current()
		case named == 0: // no life votes
			answers.Failed++
			continue
		}
		other := to.Lock != 0 && to.Lock != e.A+1
		state, _ := s.run(w, renew, e.A, to, w.Topologies[under], at.Token)
		switch lost := s.reply.Reason == redisnode.Taken || s.reply.Reason == redisnode.Ended; {
		case state == quorum.Accepted:
			answers.Extended++
		case state == quorum.Failed || !lost: // the life is gone, does not vote yet, or has a newer version
			answers.Failed++
		default:
			answers.Lost++
			if s.Maintenance && e.A == 0 && !other {
				s.violated("node %d does not take the lease back", n)
			}
		}
	}
	switch answers.Outcome() {
	case quorum.RenewalExtended:
		if at.Broken {
			s.violated("a broken lease is renewed")
		}
		for n := range s.Nodes {
			for m := range w.Nodes[n].Count {
				w.Nodes[n].Servers[m].Stale &^= 1 << e.A
			}
		}
	case quorum.RenewalLost:
		at.Over = true
	}
	if answers.Extended == s.Nodes && !s.Standalone {
		s.checkFound(w, e.A, under)
	}
}

// checkFound checks that every quorum of the lives of a topology knows the granted token of an attempt.
func (s *Search) checkFound(w *State, a, under uint8) {
	for mask := range uint8(1) << s.Nodes {
		if bits.OnesCount8(mask) != quorum.Size(s.Nodes) {
			continue
		}
		var tokens []fencing.Token
		for n := range s.Nodes {
			at := &w.Nodes[n].Servers[w.Nodes[n].Topologies[under].server()]
			if mask>>n&1 == 1 && at.Lock == a+1 && !at.Expired {
				tokens = append(tokens, large(at.Last))
			}
		}
		if t := quorum.GrantedToken(tokens, s.Nodes); t != large(w.Attempts[a].Token) {
			s.violated("nodes %03b do not know the granted token: they have %v", mask, tokens)
		}
	}
}

// mayLose reports whether a node may restart or move. In a maintenance all nodes vote before the next one
// does.
func (s *Search) mayLose(w *State) bool {
	for n := range s.Nodes {
		if s.Maintenance && w.Nodes[n].current().Version == 0 {
			return false
		}
	}
	return true
}

// renewed reports whether the quarantine of a server may end now. In a maintenance the first attempt is
// renewed meanwhile.
func (s *Search) renewed(to *server) bool { return !s.Maintenance || to.Stale&1 == 0 }

// quarantined ends the leases that were not renewed during the quarantine of a server.
func (s *Search) quarantined(w *State, to *server) {
	for a := range w.Attempts[:s.Attempts] {
		if to.Stale>>a&1 == 1 && s.Broken != VoteWithoutQuarantine {
			w.Attempts[a].Over = true
		}
	}
	to.Stale = 0
}

// beginQuarantine notes the leases that must be renewed before a server votes.
func (s *Search) beginQuarantine(w *State, to *server) {
	for a := range w.Attempts[:s.Attempts] {
		if s.Leases && to.Version == 0 && w.Attempts[a].Outcome == quorum.Granted {
			to.Stale |= 1 << a
		}
	}
}
