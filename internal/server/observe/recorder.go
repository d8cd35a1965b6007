package observe

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// Recorder remembers recent events of locks, and when tokens were granted, and wakes
// watches. It follows the Raft machine of its member, so the next leader knows as much as
// the last one. About locks in efficiency mode it knows only the events that others add.
type Recorder struct {
	clock            engine.Clock
	events, refusals *timeline
	hub              hub
	ended            atomic.Pointer[func(*machine.Event)]

	mu     sync.Mutex
	tokens series // when tokens were granted
	orders series // when waiters were queued
	grants rate   // of all locks in correctness mode
	since  time.Time
	saved  string // what the file contains; see file.go
}

var (
	_ raftstore.Observer = (*Recorder)(nil)
	_ raftstore.Times    = (*Recorder)(nil)
)

// NewRecorder returns an empty Recorder. Only the wall-clock time of its clock is used.
func NewRecorder(clock engine.Clock) *Recorder {
	return &Recorder{clock: clock, events: newTimeline(maxBytes, maxEvents),
		refusals: newTimeline(maxRefusalBytes, maxRefusals), since: clock.Now().Time().UTC()}
}

// kinds has the Kind of each event of the machine that is recorded, and 0 for the other values of an EventType.
var kinds = [1 << 8]Kind{machine.EventQueued: Waiting, machine.EventGranted: Granted,
	machine.EventReleased: Released, machine.EventCancelled: Cancelled, machine.EventExpired: Expired,
	machine.EventBroken: Broken}

// Applied records the events of a command, at the time at which the leader appended its
// entry. Entries that are applied again after a restart keep their times.
func (r *Recorder) Applied(entry raftstore.Entry, events []machine.Event) {
	if len(events) == 0 {
		return
	}
	at := entry.At
	if at.IsZero() {
		at = r.clock.Now().Time()
	}
	r.sample(entry, at, events)
	ended := r.ended.Load()
	for i := range events {
		e := &events[i]
		if ended != nil && (e.Type == machine.EventExpired || e.Type == machine.EventReleased) {
			(*ended)(e)
		}
		kind := kinds[e.Type]
		if kind == 0 {
			continue
		}
		recorded := event{at: at.UnixNano(), token: e.Token, nonce: e.Nonce, slot: int32(e.Slot), kind: kind, mode: e.Mode}
		for _, name := range e.Resources {
			r.events.add(name, recorded, party{session: e.Session, holder: e.Holder, user: e.User}, at, false)
		}
	}
	r.hub.applied(events)
}

// OnEnded makes the Recorder call f for every lease that is released or expires in correctness mode. f
// runs under the lock of the replica, and must return at once.
func (r *Recorder) OnEnded(f func(*machine.Event)) { r.ended.Store(&f) }

// sample notes the times of tokens and of orders.
func (r *Recorder) sample(entry raftstore.Entry, at time.Time, events []machine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.Before(r.since) { // replayed from the log
		r.since = at.UTC()
	}
	for i := range events {
		switch e := &events[i]; e.Type {
		case machine.EventQueued:
			r.orders.add(at, entry.Order)
		case machine.EventGranted:
			r.tokens.add(at, uint64(e.Token))
			r.grants.add(at)
		}
	}
}

// Restored forgets the events of all locks: events before the snapshot may belong to
// another history, and events until now are unknown. It records the end of the leases that
// the new state does not have. Tokens only grow, so their times stay valid.
func (r *Recorder) Restored(m *machine.Machine) {
	now := r.clock.Now().Time()
	ended := map[fencing.Resource][]event{}
	r.events.each(func(known *record) {
		if lost := known.lost(m); len(lost) > 0 {
			ended[known.name] = lost
		}
	})
	r.mu.Lock()
	r.tokens.closed, r.orders.closed = true, true
	r.since = now.UTC()
	r.mu.Unlock()
	r.events.clear()
	r.refusals.clear()
	for name, events := range ended {
		for _, e := range events {
			e.kind, e.at = Ended, now.UnixNano()
			r.events.add(name, e, *e.party, now, false)
		}
	}
	r.hub.restored()
}

// reason returns why the lease of a holder in correctness mode ended, or Ended if that is
// not known any more.
func (r *Recorder) reason(name fencing.Resource, p *engine.Party) Kind {
	events, _ := r.events.of(name)
	for i := len(events) - 1; i >= 0; i-- {
		if e := &events[i]; e.session == p.Session && e.nonce == p.Nonce && e.kind > Granted {
			return e.kind
		}
	}
	return Ended
}

// lost returns the grants in correctness mode that have not ended, oldest first, and whose
// leases a new state does not have.
func (r *record) lost(m *machine.Machine) (grants []event) {
	for _, e := range r.events {
		switch {
		case e.mode != engine.Correctness || e.token == fencing.None:
		case e.kind == Granted:
			grants = append(grants, e)
		default:
			grants = slices.DeleteFunc(grants, func(g event) bool { return g.token == e.token })
		}
	}
	if len(grants) == 0 {
		return nil
	}
	for _, p := range m.Inspect(r.name).Holders {
		grants = slices.DeleteFunc(grants, func(g event) bool { return g.token == p.Token })
	}
	return grants
}

// Granted returns when a token of correctness mode was granted, or the zero time if that
// is unknown.
func (r *Recorder) Granted(token fencing.Token) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.time(uint64(token), r.clock.Now().Time())
}

// Queued returns when a waiter of correctness mode was queued, or the zero time if that is
// unknown.
func (r *Recorder) Queued(order uint64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orders.time(order, r.clock.Now().Time())
}

// Add records an event of a lock in efficiency mode. Several sources may report the same
// event. A party with a token alone stands for the holder that was granted that token. The
// zero time means now.
func (r *Recorder) Add(name fencing.Resource, kind Kind, p *engine.Party, at time.Time) {
	if at.IsZero() {
		at = r.clock.Now().Time()
	}
	recorded := event{at: at.UnixNano(), token: p.Token, nonce: p.Nonce, slot: int32(p.Slot), kind: kind,
		mode: engine.Efficiency}
	r.events.add(name, recorded, party{session: p.Session, holder: p.Holder, user: p.User}, at, true)
}

// Refuse records a write of a party that a gate refused.
func (r *Recorder) Refuse(name fencing.Resource, p *engine.Party, refusal Refusal) {
	at := r.clock.Now().Time()
	r.refusals.add(name, event{at: at.UnixNano(), token: p.Token, kind: Refused},
		party{holder: p.Holder, user: p.User, refusal: &refusal}, at, false)
}

// Usage has figures about a lock.
type Usage struct {
	GrantsPerSecond float64 // in correctness mode
	Refused         int64   // writes
}

// Usage returns the figures of all locks that have any.
func (r *Recorder) Usage() map[fencing.Resource]Usage {
	now, usage := r.clock.Now().Time(), map[fencing.Resource]Usage{}
	r.events.each(func(known *record) {
		if rate := known.grants.perSecond(now); rate != 0 {
			usage[known.name] = Usage{GrantsPerSecond: rate}
		}
	})
	r.refusals.each(func(known *record) {
		usage[known.name] = Usage{usage[known.name].GrantsPerSecond, known.count}
	})
	return usage
}

// of returns the events and the refusals of a lock, oldest first, and whether some were
// dropped.
func (r *Recorder) of(name fencing.Resource) (events, refusals []event, truncated bool) {
	events, eventsDropped := r.events.of(name)
	refusals, refusalsDropped := r.refusals.of(name)
	return events, refusals, eventsDropped || refusalsDropped
}

// GrantsPerSecond returns the rate of all grants in correctness mode.
func (r *Recorder) GrantsPerSecond() float64 {
	now := r.clock.Now().Time()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants.perSecond(now)
}
