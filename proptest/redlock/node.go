package redlock

import (
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// fleetNames and nonces are the names of fleets and attempts on the nodes. A lock is held
// until 1 and the time is always 0, so that a lock ends by an event only.
var (
	fleetNames = [...]string{"", "1", "2", "3", "4"}
	nonces     = [maxAttempts + 1]string{"", "a", "b", "c"}
)

// script is a node as a redisnode.State.
type script struct {
	state  redisnode.State
	record redisnode.Record
	locks  []*redisnode.Record
	call   redisnode.Call
}

// load converts a node.
func (s *script) load(n *node) {
	s.state = redisnode.State{Voter: n.Version != 0, Version: uint64(n.Version), Fleet: fleetNames[n.Fleet],
		Max: large(n.Max), Floor: large(n.Floor), Ceiling: large(n.Ceiling)}
	if n.Join {
		s.state.Join = "join"
	}
	s.record = redisnode.Record{Nonce: nonces[n.Lock], Until: int64(min(1, n.Lock)), Token: large(n.Last)}
	if s.locks == nil {
		s.locks = []*redisnode.Record{&s.record}
	}
}

// store converts the changed state back.
func (s *script) store(n *node) {
	n.Version = uint8(s.state.Version)
	n.Max, n.Floor, n.Ceiling = small(s.state.Max), small(s.state.Floor), small(s.state.Ceiling)
	n.Join, n.Last, n.Lock = s.state.Join != "", small(s.record.Token), 0
	for i, nonce := range nonces {
		if nonce == s.record.Nonce {
			n.Lock = uint8(i)
		}
	}
	for i, fleet := range fleetNames {
		if fleet == s.state.Fleet {
			n.Fleet = uint8(i)
		}
	}
}

// operation is one of acquire, raise and renew of an attempt.
type operation uint8

const (
	acquire operation = iota
	raise
	renew
)

// run executes a call of an attempt on a node and returns the vote.
func (s *Search) run(w *State, op operation, a, n int, under topology, t token) (quorum.State, token) {
	to := &w.Nodes[n]
	if s.Broken == EmptyFromZero && to.Version == 0 {
		*to = node{Version: under.Version, Fleet: under.Fleet, Ceiling: w.Log.Ceiling, Exchanges: to.Exchanges}
	}
	s.load(to)
	s.call = redisnode.Call{Version: uint64(under.Version), Fleet: fleetNames[under.Fleet], Nonce: nonces[a+1], TTL: 1, Token: large(t)}
	switch {
	case s.Broken == OverlappingFleets:
		s.call.Fleet = s.state.Fleet
	case s.Broken == NoCeiling, s.Broken == RaisePastCeiling && op == raise:
		s.state.Ceiling = large(most)
	}
	var reply redisnode.Reply
	switch op {
	case acquire:
		reply = s.state.Acquire(0, s.locks, &s.call)
	case raise:
		reply = s.state.Raise(0, s.locks, &s.call)
	case renew:
		reply = s.state.Renew(0, s.locks, &s.call)
	}
	s.state.Ceiling = large(to.Ceiling)
	s.store(to)
	switch reply.Reason {
	case redisnode.Accepted:
		return quorum.Accepted, small(reply.Token)
	case redisnode.Held:
		return quorum.Held, 0
	}
	return quorum.Refused, 0
}

// report returns the report of a node.
func (n *node) report() recovery.Report {
	r := recovery.Report{Reached: true}
	if n.Version != 0 {
		r.Live = &recovery.State{Version: uint64(n.Version), Fleet: fleetNames[n.Fleet], Max: large(n.Max), Floor: large(n.Floor), Ceiling: large(n.Ceiling)}
	}
	if n.Former {
		r.Former = &recovery.State{Version: uint64(n.FormerVersion), Max: large(n.FormerMax), Floor: large(n.FormerFloor), Ceiling: large(n.FormerCeiling)}
	}
	return r
}

// lose restarts a node. Messages of attempts may arrive in its next life, which production
// prevents.
func (s *Search) lose(w *State, n int, kept evidence) {
	was := w.Nodes[n]
	w.Nodes[n] = node{Exchanges: was.Exchanges, Reached: was.Reached, Reported: was.Reported}
	is := &w.Nodes[n]
	if s.Broken == InitWithoutJoin || s.Broken == JoinNonceTwice {
		is.Range, is.RangeVersion, is.RangeFleet, is.RangeFloor, is.RangeCeiling = was.Range, was.RangeVersion, was.RangeFleet, was.RangeFloor, was.RangeCeiling
	}
	switch {
	case kept == nothing:
	case was.Version == 0: // it may keep older data
		is.Former, is.FormerVersion, is.FormerMax, is.FormerFloor, is.FormerCeiling = was.Former, was.FormerVersion, was.FormerMax, was.FormerFloor, was.FormerCeiling
	default:
		is.Former, is.FormerVersion, is.FormerMax, is.FormerFloor, is.FormerCeiling = true, was.Version, was.Max, was.Floor, was.Ceiling
		switch kept {
		case early:
			is.FormerMax = was.Floor
		case old:
			is.FormerMax, is.FormerFloor = 0, 0
		}
	}
}

// evidence is the data that survives a restart.
type evidence uint8

const (
	nothing evidence = iota
	all              // the current data
	early            // the current data when it became a voter
	old              // the current data found when it became a voter, or nothing but zeros
)
