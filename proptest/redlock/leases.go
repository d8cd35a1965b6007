package redlock

import (
	"fmt"
	"math/bits"

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
// There is no time, except for two assumptions. A quarantine is as long as a lease, so a lease that was not
// renewed between the loss of a node and its init is over for its holder. A break takes at most the timeout
// of a node, which is shorter than a quarantine, so a node that is lost meanwhile has not confirmed it.
//
// Breaks are not searched together with addresses that move: a release does not compare versions, so a break may
// end the lease on lives of one topology while its holder renews it on those of another.

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
	}
	if at.Outcome != quorum.Granted || at.Over {
		return
	}
	for mask := range uint8(1) << s.Nodes {
		if bits.OnesCount8(mask) < quorum.Size(s.Nodes) {
			continue
		}
		for i, t := range w.Topologies {
			if t.Version != 0 {
				yield(event{renewalRound, a, 0, mask, uint8(i)})
			}
		}
	}
}

// endEvents are the releases, breaks and expiries of an attempt on a server.
func (s *Search) endEvents(w *State, a, n, m uint8, yield func(event)) {
	at, to := &w.Attempts[a], &w.Nodes[n].Servers[m]
	kept := s.Maintenance && a == 0 // its holder renews in time, and does not release it
	if to.Lock == a+1 && !to.Expired && !kept {
		yield(event{lockExpires, n, m, 0, 0})
	}
	named := false
	for _, l := range w.Nodes[n].Topologies {
		named = named || l != 0 && l.server() == int(m)
	}
	if !named {
		return
	}
	if !kept {
		yield(event{releaseArrives, a, n, m, 0})
	}
	if at.Outcome == quorum.Granted && (at.BrokenAt != 0 || w.Left.Breaks > 0) {
		yield(event{breakArrives, a, n, m, 0})
	}
}

// release executes a release or a break on a server, which refuses late copies of the attempt if refuse is set. An
// attempt that was not granted has no token.
func (s *Search) release(w *State, a, n, m int, cause string, refuse bool) bool {
	at, was := &w.Attempts[a], *w
	end := redisnode.End{Nonce: nonces[a+1], Cause: cause, Wake: redisnode.WakeNone, Refuse: refuse}
	if at.Outcome == quorum.Granted {
		end.Token = large(at.Token)
	}
	if cause == redisnode.Broken {
		if at.BrokenAt == 0 {
			w.Left.Breaks--
		}
		at.BrokenAt |= 1 << n
	} else {
		at.Over = true // the holder does not renew it any more
	}
	to := &w.Nodes[n].Servers[m]
	if s.Broken == EndingsWhereHeld && to.Lock != uint8(a)+1 {
		return *w != was
	}
	s.load(to)
	redisnode.Release(0, s.locks, end)
	if s.Broken == EndingsByName {
		s.record.Ended = fencing.None
	}
	s.store(to)
	return *w != was
}

// renewal is a renewal on the nodes in mask, under a topology, of which quorum.Renewal decides. The others fail.
func (s *Search) renewal(w *State, a int, mask, under uint8) (bool, error) {
	at, was := &w.Attempts[a], *w
	answers := quorum.Renewal{Nodes: s.Nodes, Failed: s.Nodes - bits.OnesCount8(mask)}
	for n := range s.Nodes {
		named := w.Nodes[n].Topologies[under]
		if mask>>n&1 == 0 {
			continue
		}
		if named == 0 { // no life votes
			answers.Failed++
			continue
		}
		to := &w.Nodes[n].Servers[named.server()]
		other := to.Lock != 0 && to.Lock != uint8(a)+1
		state, _ := s.run(w, renew, a, to, w.Topologies[under], at.Token)
		switch lost := s.reply.Reason == redisnode.Taken || s.reply.Reason == redisnode.Ended; {
		case state == quorum.Accepted:
			answers.Extended++
		case state == quorum.Failed || !lost: // the life is gone, does not vote yet, or has a newer version
			answers.Failed++
		default:
			answers.Lost++
			if s.Maintenance && a == 0 && !other {
				return true, Violation(fmt.Sprintf("node %d does not take the lease back", n))
			}
		}
	}
	switch answers.Outcome() {
	case quorum.RenewalExtended:
		if bits.OnesCount8(at.BrokenAt) >= quorum.Size(s.Nodes) {
			return true, Violation("a broken lease is renewed")
		}
		at.Stale = 0
	case quorum.RenewalLost:
		at.Over = true
	}
	if answers.Extended == s.Nodes {
		if err := s.found(w, a, under); err != nil {
			return true, err
		}
	}
	return *w != was, nil
}

// found checks that every quorum of the lives of a topology knows the granted token of an attempt.
func (s *Search) found(w *State, a int, under uint8) error {
	for mask := range uint8(1) << s.Nodes {
		if bits.OnesCount8(mask) != quorum.Size(s.Nodes) {
			continue
		}
		var tokens []fencing.Token
		for n := range s.Nodes {
			at := &w.Nodes[n].Servers[w.Nodes[n].Topologies[under].server()]
			if mask>>n&1 == 1 && at.Lock == uint8(a)+1 && !at.Expired {
				tokens = append(tokens, large(at.Last))
			}
		}
		if t := quorum.GrantedToken(tokens, s.Nodes); t != large(w.Attempts[a].Token) {
			return Violation(fmt.Sprintf("nodes %03b do not know the granted token: they have %v", mask, tokens))
		}
	}
	return nil
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

// renewed reports whether the quarantine of a node may end now. In a maintenance the first attempt is
// renewed meanwhile.
func (s *Search) renewed(w *State, n int) bool {
	return !s.Maintenance || w.Attempts[0].Stale>>n&1 == 0
}

// quarantined ends the leases that were not renewed since a node was lost, when the node votes again.
func (s *Search) quarantined(w *State, n int) {
	for a := range w.Attempts[:s.Attempts] {
		if at := &w.Attempts[a]; s.Leases && at.Stale>>n&1 == 1 && s.Broken != VoteWithoutQuarantine {
			at.Over = true
		}
	}
}

// stale notes the leases that must be renewed before a lost node votes again. Breaks in progress lose its
// confirmation.
func (s *Search) stale(w *State, n int) {
	for a := range w.Attempts[:s.Attempts] {
		at := &w.Attempts[a]
		if !s.Leases || at.Outcome != quorum.Granted {
			continue
		}
		at.Stale |= 1 << n
		if bits.OnesCount8(at.BrokenAt) < quorum.Size(s.Nodes) {
			at.BrokenAt &^= 1 << n
		}
	}
}
