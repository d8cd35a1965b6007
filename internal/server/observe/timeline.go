package observe

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxEvents and maxRefusals are the numbers of events of one lock, 64 together. Refused
	// writes are counted separately, so a writer that was refused many times does not displace
	// the grants that explain why.
	maxEvents, maxRefusals = 48, 16
	// maxBytes bounds the memory of the events of all locks, as accounted by their costs, and
	// maxRefusalBytes bounds the memory of the refusals. Any caller may report refusals for many
	// locks: they displace other refusals, but no events.
	maxBytes, maxRefusalBytes = 4 << 20, 1 << 20
	// shards is the number of parts with a lock each, so that a reader of all locks never
	// holds up the Raft machine for long.
	shards = 64
	// lockCost is the memory of a lock without its name and its events: the record and its
	// place in the map.
	lockCost = 160
	// sameTime is how far the times of two reports of one event may differ.
	sameTime = 2 * time.Second
)

// Kind is the kind of an event, as the API names it.
type Kind uint8

// The kinds of events.
const (
	Waiting Kind = iota + 1
	Granted
	Released
	Cancelled
	Expired
	Broken
	Ended   // the cause is unknown
	Refused // a gate refused a write
)

var kindNames = [...]string{Waiting: "waiting", Granted: "granted", Released: "released", Cancelled: "cancelled",
	Expired: "expired", Broken: "broken", Ended: "ended", Refused: "refused"}

// String returns the type of the event in the API.
func (k Kind) String() string { return kindNames[k] }

// KindOf returns the Kind with a name, or 0 if there is none.
func KindOf(name string) Kind {
	for i, known := range kindNames {
		if known == name && name != "" {
			return Kind(i)
		}
	}
	return 0
}

// event is something that happened to a lock.
type event struct {
	at    int64 // nanoseconds of Unix time
	token fencing.Token
	nonce engine.Nonce
	*party
	slot int32
	kind Kind
	mode engine.Mode
}

// party is who an event is about. It is larger than the rest of an event, so events share it.
type party struct {
	session      engine.SessionID
	holder, user string
	refusal      *Refusal // nil unless the event is one
}

// sameAttempt reports whether two events belong to one acquisition attempt. A waiter of
// another process in efficiency mode has a name only.
func (e *event) sameAttempt(o *event) bool {
	return e.session == o.session && e.nonce == o.nonce && (e.nonce != 0 || e.holder == o.holder)
}

// Refusal says which gate refused a write, and why.
type Refusal struct {
	Mark         fencing.Token
	Gate, Reason string
}

// record is what is known about one lock: its events or its refusals.
type record struct {
	name    fencing.Resource
	events  []event  // oldest first
	count   int64    // of all events
	grants  rate     // in correctness mode
	dropped bool     // older events were dropped
	first   [1]event // storage for the event of a lock that is held for long
}

// shard has the records of some locks. When the current generation is full, it replaces
// the older one. A lock with a new event moves to the current generation.
type shard struct {
	mu             sync.Mutex
	current, older map[fencing.Resource]*record
	bytes          int // of current
	full           int // the bytes above which current is replaced
	dropped        bool
	last           *party // of the last event whose lock had another party before
}

// timeline has the records of all locks. A Recorder has one for events and one for
// refusals.
type timeline struct {
	seed   maphash.Seed
	most   int // events of one lock
	shards [shards]shard
}

// newTimeline returns an empty timeline that uses at most this much memory, and keeps at most
// so many events of one lock.
func newTimeline(bytes, most int) *timeline {
	t := &timeline{seed: maphash.MakeSeed(), most: most}
	for i := range t.shards {
		t.shards[i].full = bytes / 2 / shards
	}
	return t
}

func (t *timeline) shard(name fencing.Resource) *shard {
	return &t.shards[maphash.String(t.seed, string(name))%shards]
}

// record returns the record of a lock, in the current generation. The caller holds mu.
func (s *shard) record(name fencing.Resource) *record {
	if s.bytes > s.full || s.current == nil { // also when known records have grown
		s.dropped = s.dropped || len(s.older) > 0
		s.older, s.current, s.bytes = s.current, make(map[fencing.Resource]*record, len(s.current)), 0
	}
	r := s.current[name]
	if r != nil {
		return r
	}
	if r = s.older[name]; r != nil {
		delete(s.older, name)
	} else {
		// The name may be part of a log entry.
		r = &record{name: fencing.Resource(strings.Clone(string(name))), dropped: s.dropped}
		r.events = r.first[:0]
	}
	s.current[r.name] = r
	s.bytes += r.cost()
	return r
}

const eventSize = int(unsafe.Sizeof(event{}))

// cost returns the memory of a record. Parties that it shares with other records count for all of them.
func (r *record) cost() int {
	bytes := lockCost + len(r.name)
	if cap(r.events) > len(r.first) {
		bytes += cap(r.events) * eventSize
	}
	for i := range r.events {
		if i == 0 || r.events[i].party != r.events[i-1].party {
			bytes += r.events[i].party.cost()
		}
	}
	return bytes
}

// cost returns the memory of a party.
func (p *party) cost() int {
	bytes := int(unsafe.Sizeof(party{})) + len(p.holder) + len(p.user)
	if p.refusal != nil {
		bytes += int(unsafe.Sizeof(Refusal{})) + len(p.refusal.Gate) + len(p.refusal.Reason)
	}
	return bytes
}

// add adds an event of a party.
func (t *timeline) add(name fencing.Resource, e event, who party, at time.Time, onlyNew bool) {
	s := t.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(name)
	e.party = s.shared(r, &who)
	if onlyNew {
		r.complete(&e)
		if r.knows(&e) {
			return
		}
	}
	if e.kind == Granted && e.mode == engine.Correctness {
		r.grants.add(at)
	}
	if len(r.events) == cap(r.events) {
		s.bytes -= r.cost()
		r.makeRoom(t.most)
		s.bytes += r.cost()
	}
	if n := len(r.events); n == 0 || r.events[n-1].party != e.party {
		s.bytes += e.party.cost()
	}
	r.events = append(r.events, e)
	r.count++
}

// makeRoom makes room for another event. If there are as many as may be, it drops a quarter of them at once, so the
// rest is rarely moved.
func (r *record) makeRoom(most int) {
	if n := len(r.events); n == most {
		r.events, r.dropped = slices.Delete(r.events, 0, n/4), true
	} else {
		r.events = append(make([]event, 0, min(2*n, most)), r.events...)
		r.first = [len(r.first)]event{}
	}
}

// shared returns a copy of a party, whose texts may be part of a log entry. If the last event of the lock, or last, has
// the same party, it returns that one: clients use a lock again, and use many locks.
func (s *shard) shared(r *record, who *party) *party {
	if n := len(r.events); n > 0 && *r.events[n-1].party == *who {
		return r.events[n-1].party
	}
	if s.last == nil || *s.last != *who {
		s.last = &party{session: who.session, holder: strings.Clone(who.holder), user: strings.Clone(who.user),
			refusal: who.refusal}
	}
	return s.last
}

// complete fills in the attempt of an event that names a token alone.
func (r *record) complete(e *event) {
	for i := range r.events {
		if o := &r.events[i]; e.nonce == 0 && e.token != fencing.None && o.token == e.token {
			e.party, e.nonce, e.slot = o.party, o.nonce, o.slot
		}
	}
}

// knows reports whether an event was recorded before, from another source.
func (r *record) knows(e *event) bool {
	for i := range r.events {
		if o := &r.events[i]; o.kind == e.kind && o.sameAttempt(e) &&
			(e.nonce != 0 || time.Duration(e.at-o.at).Abs() < sameTime) {
			return true
		}
	}
	return false
}

// of returns copies of the events of a lock, oldest first.
func (t *timeline) of(name fencing.Resource) (events []event, truncated bool) {
	s := t.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.current[name]
	if r == nil {
		r = s.older[name]
	}
	if r == nil {
		return nil, s.dropped
	}
	return slices.Clone(r.events), r.dropped
}

// each calls f for each record, in no order. f must return at once.
func (t *timeline) each(f func(r *record)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, generation := range []map[fencing.Resource]*record{s.current, s.older} {
			for _, r := range generation {
				f(r)
			}
		}
		s.mu.Unlock()
	}
}

// clear forgets all events. Later answers say that some were dropped.
func (t *timeline) clear() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.dropped = s.dropped || len(s.current)+len(s.older) > 0
		s.current, s.older, s.bytes = nil, nil, 0
		s.mu.Unlock()
	}
}
