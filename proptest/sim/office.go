package sim

import (
	"slices"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// proofLife is how long a committed entry proves that its proposer leads, and
// the grace that a new leader gives on top of every TTL: raftstore's rule.
const proofLife = electionTimeout

// office is what a leader does for clients, by the rules of raftstore: one entry
// in flight, all that is asked for meanwhile in the next; deadlines in memory,
// on its own clock; nothing served before its Lead is applied.
type office struct {
	*replica
	generation uint64 // 0 until Lead is applied
	proven     time.Duration
	restoring  bool

	waiting  []proposal // for the next entry
	flight   []proposal // in the log
	index    uint64     // of the entry in flight, 0 if none is
	sent     time.Duration
	expected map[turn]func(answer) // who waits for its turn
	sessions map[engine.SessionID]*tenure
}

// proposal is a command on its way; without one it is a barrier.
type proposal struct {
	command machine.Command
	reply   func(answer)
}

// turn is an attempt that waits.
type turn struct {
	session     engine.SessionID
	incarnation uint64
	nonce       engine.Nonce
}

// tenure is the time of one session.
type tenure struct {
	machine.SessionInfo
	deadline time.Duration
	ending   bool
}

func newOffice(r *replica) *office {
	return &office{replica: r, expected: map[turn]func(answer){}, sessions: map[engine.SessionID]*tenure{}}
}

// lead proposes Lead, and serves once it is applied.
func (o *office) lead() {
	o.generation = 0
	o.enqueue(&machine.Lead{}, func(a answer) {
		if a.state != served || o.machine.Generation() != a.result.Generation {
			return
		}
		o.generation, o.proven, o.restoring = a.result.Generation, o.sent, false
		o.sessions = map[engine.SessionID]*tenure{}
		standings := o.machine.Sessions()
		for _, id := range sortedSessions(standings) {
			o.begin(id, standings[id], proofLife)
		}
		for _, e := range o.machine.Delays() {
			o.delay(e)
		}
	})
}

func sortedSessions(standings map[engine.SessionID]machine.SessionInfo) []engine.SessionID {
	ids := make([]engine.SessionID, 0, len(standings))
	for id := range standings {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b engine.SessionID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// closeAll ends a leadership: what was asked for may or may not have happened.
func (o *office) closeAll() {
	for _, p := range slices.Concat(o.flight, o.waiting) {
		p.reply(answer{state: uncertain, leader: -1})
	}
	o.flight, o.waiting, o.generation = nil, nil, 0
}

// current reports whether this is still the office of its replica.
func (o *office) current() bool { return o.replica.office == o }

func (o *office) enqueue(c machine.Command, reply func(answer)) {
	o.waiting = append(o.waiting, proposal{c, reply})
	o.flush()
}

func (o *office) flush() {
	if o.index != 0 || len(o.waiting) == 0 {
		return
	}
	o.flight, o.waiting = o.waiting, nil
	commands := make([]machine.Command, 0, len(o.flight))
	for _, p := range o.flight {
		if p.command != nil {
			commands = append(commands, p.command)
		}
	}
	o.sent = o.clockNow()
	o.index = o.last() + 1 // before it is appended: a single member commits at once
	o.append(entry{data: machine.Encode(commands...)})
}

// applied answers what was in an entry.
func (o *office) applied(index uint64, e *entry, results []machine.Result) {
	if e.restore != nil && o.restoring {
		o.lead()
	}
	if index != o.index || e.term != o.term {
		return
	}
	if o.generation != 0 {
		o.proven = o.sent
	}
	flight := o.flight
	o.flight, o.index = nil, 0
	for _, p := range flight {
		a := answer{state: served, leader: o.slot}
		if p.command != nil {
			a.result, results = results[0], results[1:]
		}
		p.reply(a)
	}
	if o.current() {
		o.flush()
	}
}

// heard keeps the books in step with the machine.
func (o *office) heard(c machine.Command, result machine.Result, events []machine.Event) {
	if o.generation == 0 {
		return
	}
	switch c := c.(type) {
	case *machine.OpenSession:
		if o.sessions[c.Session] == nil {
			o.begin(c.Session, machine.SessionInfo{TTL: c.TTL, Incarnation: result.Incarnation}, 0)
		}
	case *machine.CloseSession:
		o.forget(c.Session, c.Incarnation)
	case *machine.Expire:
		if result.Code == machine.Done || result.Code == machine.NoSession {
			o.forget(c.Session, c.Incarnation)
		}
	}
	for _, e := range events {
		switch e.Type {
		case machine.EventDelayed:
			o.delay(e)
		case machine.EventCancelled: // it has released, or its lock moves
			t := turn{e.Session, e.Incarnation, e.Nonce}
			if reply := o.expected[t]; reply != nil {
				delete(o.expected, t)
				reply(answer{state: served, leader: o.slot, result: machine.Result{Code: machine.Moving}})
			}
		case machine.EventGranted:
			t := turn{e.Session, e.Incarnation, e.Nonce}
			if reply := o.expected[t]; reply != nil {
				delete(o.expected, t)
				reply(answer{state: served, leader: o.slot, result: machine.Result{Code: machine.Granted, Token: e.Token, Slot: e.Slot, Mode: e.Mode}})
			}
		}
	}
}

// begin starts the time of a session.
func (o *office) begin(id engine.SessionID, s machine.SessionInfo, grace time.Duration) {
	t := &tenure{SessionInfo: s, deadline: o.clockNow() + s.TTL + grace}
	o.sessions[id] = t
	o.watch(id, t)
}

// forget ends the time of a session that is over.
func (o *office) forget(id engine.SessionID, incarnation uint64) {
	if t := o.sessions[id]; t != nil && t.Incarnation == incarnation {
		delete(o.sessions, id)
	}
}

// watch proposes the end of a session whose time has passed.
func (o *office) watch(id engine.SessionID, t *tenure) {
	o.w.timer(o.party, max(t.deadline-o.clockNow(), 10*time.Millisecond), func() {
		if !o.current() || o.sessions[id] != t || t.ending {
			return
		}
		if o.clockNow() < t.deadline {
			o.watch(id, t)
			return
		}
		t.ending = true
		o.carry(&machine.Expire{Session: id, Incarnation: t.Incarnation, Generation: o.generation})
	})
}

// delay opens a lock again when its lock-delay has passed.
func (o *office) delay(e machine.Event) {
	end := &machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID, Generation: o.generation}
	o.w.timer(o.party, e.Delay, func() {
		if o.current() {
			o.carry(end)
		}
	})
}

// carry takes what this leader has decided to whoever leads by the time it
// arrives. That is more than production does, which drops it; the machine must
// not care.
func (o *office) carry(c machine.Command) {
	r, tries := o.replica, 0
	var deliver func()
	deliver = func() {
		if tries++; tries > 40 {
			return
		}
		if at := r.cluster.anyLeader(); at != nil {
			at.propose(c, func(a answer) {
				if a.state != served && !r.down {
					r.w.timer(r.party, r.w.random(200*time.Millisecond), deliver)
				}
			})
			return
		}
		r.w.timer(r.party, r.w.random(500*time.Millisecond), deliver)
	}
	r.w.timer(r.party, r.w.way(), deliver)
}

// propose commits a command on this replica, if it serves.
func (r *replica) propose(c machine.Command, reply func(answer)) {
	if r.office == nil || r.office.generation == 0 || r.office.restoring {
		reply(answer{state: elsewhere, leader: r.hint()})
		return
	}
	r.office.enqueue(c, reply)
}

func (r *replica) hint() int {
	if r.leader == r.slot {
		return -1
	}
	return r.leader
}

// acquire commits an acquire. The answer to one that has to wait comes when its
// turn does.
func (r *replica) acquire(c *machine.Acquire, reply func(answer)) {
	r.propose(c, func(a answer) {
		if a.state == served && a.result.Code == machine.Queued && c.Request.Wait && r.office != nil {
			r.office.expected[turn{c.Session, c.Incarnation, c.Request.Nonce}] = reply
			return
		}
		reply(a)
	})
}

// renew prolongs a session in memory, if a recent entry proves that this replica
// leads; else an empty one is committed first.
func (r *replica) renew(id engine.SessionID, incarnation uint64, reply func(answer)) {
	if r.office == nil || r.office.generation == 0 || r.office.restoring {
		reply(answer{state: elsewhere, leader: r.hint()})
		return
	}
	if r.clockNow()-r.office.proven < proofLife {
		reply(answer{state: r.prolong(id, incarnation), leader: r.slot})
		return
	}
	r.office.enqueue(nil, func(a answer) {
		if a.state == served {
			a.state = r.prolong(id, incarnation)
		}
		reply(a)
	})
}

// prolong gives a session its full time again.
func (r *replica) prolong(id engine.SessionID, incarnation uint64) state {
	o := r.office
	if o == nil || o.generation == 0 {
		return uncertain
	}
	t := o.sessions[id]
	if t == nil || t.ending || t.Incarnation != incarnation {
		return expired
	}
	t.deadline = max(t.deadline, r.clockNow()+t.TTL)
	return prolonged
}
