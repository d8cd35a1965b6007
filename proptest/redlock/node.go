package redlock

import (
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// fleetNames and nonces are the names of fleets and attempts on the nodes. A lock is held
// until 1 and the time is always 0, so that a lock ends by an event only.
var (
	fleetNames  = [...]string{"", "1", "2", "3", "4"}
	nonces      = [maxAttempts + 1]string{"", "a", "b", "c"}
	serverNames = [maxServers + 1]string{"", "s", "t", "u"} // of one address, counted from 1
	joins       = [...]string{"", "i", "j", "k"}
	lifeNames   = lives()
)

func lives() (names [unknown + 1]string) {
	names[unknown] = recovery.Unknown
	for l := range life(maxServers << 2) {
		if join := l.join(); join != 0 {
			names[l] = recovery.LifeName(serverNames[l.server()+1], joins[join])
		}
	}
	return names
}

// script is a node as a redisnode.State.
type script struct {
	state  redisnode.State
	record redisnode.Record
	locks  []*redisnode.Record
	call   redisnode.Call
	reply  redisnode.Reply // to the last call of run
}

// load converts a server.
func (s *script) load(n *server) {
	s.state = redisnode.State{Voter: n.Version != 0, Version: uint64(n.Version), Fleet: fleetNames[n.Fleet],
		Successor: fleetNames[n.Successor],
		Max:       large(n.Max), Floor: large(n.Floor), Ceiling: large(n.Ceiling), Join: joins[n.Join],
		Initialised: joins[n.Initialised]}
	s.record = redisnode.Record{Nonce: nonces[n.Lock], Until: int64(min(1, n.Lock)), Token: large(n.Last),
		Counter: large(n.Counter),
		Ended:   large(n.Ended), Released: nonces[n.Released]}
	if n.Expired {
		s.record.Until = 0
	}
	if n.Renewed {
		s.record.Renewed = s.record.Token
	}
	if s.locks == nil {
		s.locks = []*redisnode.Record{&s.record}
	}
}

// store converts the changed state back.
func (s *script) store(n *server) {
	n.Version = uint8(s.state.Version)
	n.Max, n.Floor, n.Ceiling = small(s.state.Max), small(s.state.Floor), small(s.state.Ceiling)
	n.Last, n.Lock, n.Counter = small(s.record.Token), index(nonces[:], s.record.Nonce), 0
	n.Renewed = n.Lock != 0 && s.record.Renewed == s.record.Token
	if s.record.Counter > s.record.Token {
		n.Counter = small(s.record.Counter)
	}
	n.Ended, n.Released = small(s.record.Ended), index(nonces[:], s.record.Released)
	n.Expired = n.Lock != 0 && s.record.Until == 0
	n.Fleet, n.Successor = index(fleetNames[:], s.state.Fleet), index(fleetNames[:], s.state.Successor)
	n.Join, n.Initialised = index(joins[:], s.state.Join), index(joins[:], s.state.Initialised)
}

func index(names []string, name string) uint8 {
	for i := range names {
		if names[i] == name {
			return uint8(i)
		}
	}
	panic("unknown name " + name)
}

// operation is one of acquire, raise and renew of an attempt.
type operation uint8

const (
	acquire operation = iota
	raise
	renew
)

// run executes a call of an attempt on a server and returns the vote. A call checks the
// server, but not the join nonce of its life: the keys of a server have its name.
func (s *Search) run(w *State, op operation, a uint8, to *server, under topology, t token) (quorum.State, token) {
	if to.Gone {
		return quorum.Failed, 0
	}
	if s.Broken == EmptyFromZero && to.Version == 0 {
		*to = server{data: data{Version: under.Version, Fleet: under.Fleet, Ceiling: w.Log.Ceiling}}
	}
	s.load(to)
	s.call = redisnode.Call{Version: uint64(under.Version), Fleet: fleetNames[under.Fleet], Nonce: nonces[a+1], TTL: 1,
		Token: large(t)}
	switch {
	case s.Broken == OverlappingFleets:
		s.call.Fleet = s.state.Fleet
	case s.Broken == NoCeiling, s.Broken == RaisePastCeiling && op == raise:
		s.state.Ceiling = large(most)
	}
	switch op {
	case acquire:
		s.reply = s.state.Acquire(0, s.locks, &s.call)
	case raise:
		s.reply = s.state.Raise(0, s.locks, &s.call)
	case renew:
		s.reply = s.renew()
	}
	s.state.Ceiling = large(to.Ceiling)
	s.store(to)
	switch s.reply.Reason {
	case redisnode.Accepted:
		return quorum.Accepted, small(s.reply.Token)
	case redisnode.Held:
		return quorum.Held, 0
	}
	return quorum.Refused, 0
}

// renew executes a renewal.
func (s *Search) renew() redisnode.Reply {
	last := max(s.record.Token, s.record.Counter)
	missing := last == fencing.None
	if missing {
		last = s.state.Max
	}
	if s.Broken == NoTakeBack && s.record.Nonce != s.call.Nonce && last > s.call.Token {
		return redisnode.Reply{Reason: redisnode.Taken}
	}
	reply := s.state.Renew(0, s.locks, &s.call)
	switch {
	case reply.Reason != redisnode.Accepted:
	case s.Broken == TakeBackWithoutCounter && missing:
		s.record.Counter = fencing.None
	case s.Broken == GrantedTokenUnknown:
		s.record.Token = max(s.record.Token, s.record.Counter)
	}
	return reply
}

// report returns the report of a server.
func (n *node) report(m int) recovery.Report {
	at := &n.Servers[m]
	if at.Gone {
		return recovery.Report{}
	}
	r := recovery.Report{Reached: true, Server: serverNames[m+1], FormerServer: serverNames[at.Former.Server]}
	if at.Version != 0 {
		r.Live = at.data.report(at.Initialised)
	}
	if at.Former.Known {
		r.Former = at.Former.data.report(0)
	}
	return r
}

// report returns the data in a report, with the join nonce that made the server a voter.
func (d data) report(initialised uint8) *recovery.State {
	return &recovery.State{Version: uint64(d.Version), Fleet: fleetNames[d.Fleet], Max: large(d.Max),
		Floor: large(d.Floor), Ceiling: large(d.Ceiling), Join: joins[initialised], Successor: fleetNames[d.Successor]}
}

// lose restarts the server that an address leads to. Without a service, no process refers
// to the lives of a server, so the new one takes its place.
func (s *Search) lose(w *State, e event) {
	w.Left.Losses--
	at := &w.Nodes[e.A]
	was, is, former := *at.current(), at.current(), uint8(0)
	if s.Standalone {
		*is = server{}
	} else {
		former = at.Current + 1
		*is = server{Gone: true, Reached: was.Reached, Joins: was.Joins}
		is = at.begin()
	}
	if s.Broken == InitWithoutJoin || s.Broken == JoinNonceTwice {
		is.Init = was.Init
	}
	s.keep(is, &was, evidence(e.C), former)
}

// keep leaves data of a server, which is counted from 1, to its successor.
func (s *Search) keep(is, was *server, kept evidence, number uint8) {
	switch {
	case kept == nothing:
		return
	case was.Version == 0: // it may keep older data
		is.Former = was.Former
		return
	}
	is.Former = former{Known: true, Server: number, data: was.data}
	switch kept {
	case early:
		is.Former.Max = was.Floor
	case old:
		is.Former.Max, is.Former.Floor = 0, 0
	}
}

// begin starts a new server at an address.
func (n *node) begin() *server {
	n.Current = n.Count
	n.Count++
	return n.current()
}

// evidence is the data that survives a restart.
type evidence uint8

const (
	nothing evidence = iota
	all              // the current data
	early            // the current data when it became a voter
	old              // the current data found when it became a voter, or nothing but zeros
)
