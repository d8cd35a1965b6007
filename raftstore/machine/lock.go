package machine

import (
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// session is one incarnation of a client's session. Its requests are holders and
// waiters. Of ended attempts it keeps only the nonces, so that a late copy of an attempt
// is not treated as a new one.
type session struct {
	place
	id          engine.SessionID
	incarnation uint64 // unique among all sessions
	ttl         time.Duration
	user        string // the owner
	usage       *usage // of user
	requests    map[engine.Nonce]*request
	waiting     requestList // the waiters, by order
	holding     requestList // the holders, by token
	ended       spans       // at most MaxEnded
	forgotten   uint64      // nonces up to this one have ended, unless they are live
	how         EventType   // how its leases end, 0 while it is open
}

// MaxEnded is the number of separate ranges of ended nonces that a session remembers.
// Consecutive nonces need about one range for each live attempt. When a session would
// exceed MaxEnded, its lowest range and everything below count as ended, so that an ended
// attempt stays ended and both memory and time are bounded.
const MaxEnded = 4096

// end marks an attempt as ended.
func (s *session) end(nonce engine.Nonce) {
	if uint64(nonce) <= s.forgotten {
		return
	}
	s.ended.add(uint64(nonce))
	if len(s.ended) > MaxEnded {
		s.forgotten = s.ended[0].hi
		s.ended = s.ended[1:]
	}
}

// request is a holder if it has a token, else a waiter. Apart from its places in lists, it
// does not change after the command that made it.
type request struct {
	place
	previous, next *request // in a requestList

	session   *session
	nonce     engine.Nonce
	order     uint64 // the order in which requests were applied
	resources []fencing.Resource
	kind      engine.Kind
	permits   int
	slot      int
	token     fencing.Token
	holder    string
	metadata  map[string]string
}

// lock is a resource with holders, waiters or a lock delay. There is none for an unused
// resource: tokens are global, so nothing about it has to be remembered.
type lock struct {
	holders []*request  // in the order of their tokens
	queue   []*request  // in ascending order
	delay   *delay      // that is running, or nil
	first   [1]*request // storage for the only holder that most locks have
}

// delay is a running lock delay. It does not change.
type delay struct {
	place  // in everyDelay
	name   fencing.Resource
	number uint64
}

// permits returns the number of permits that the lock has while permits are held or waited
// for, else 0. All requests for its permits have the same number.
func (l *lock) permits() int {
	if len(l.holders) > 0 && l.holders[0].kind == engine.Permit { // all holders have the same kind
		return l.holders[0].permits
	}
	for _, w := range l.queue {
		if w.kind == engine.Permit {
			return w.permits
		}
	}
	return 0
}

func (l *lock) unused() bool { return len(l.holders) == 0 && len(l.queue) == 0 && l.delay == nil }

// compatible reports whether requests of these kinds may hold a resource at the same
// time.
func compatible(a, b engine.Kind) bool { return a == b && a != engine.Exclusive }

// freeSlots has the slots of a lock that no holder has. One value serves many grants, as long
// as no holder leaves.
type freeSlots struct {
	taken []bool // nil before the first slot is taken
	last  int    // that was taken; lower ones are not free
}

// take returns the lowest slot that is free. There is one: see admits.
func (f *freeSlots) take(l *lock, permits int) int {
	if f.taken == nil {
		f.taken = make([]bool, permits+1)
		for _, h := range l.holders {
			f.taken[h.slot] = true
		}
	}
	f.last += slices.Index(f.taken[f.last+1:], false) + 1
	return f.last
}

// admits reports whether r may hold this lock together with its holders and before its
// later waiters. Permits are granted strictly in order, because they compete for slots.
// Readers overtake readers. If behindReaders is set, all waiters before r are readers.
func (l *lock) admits(r *request, behindReaders bool) bool {
	if l.delay != nil {
		return false
	}
	if len(l.holders) > 0 && !compatible(l.holders[0].kind, r.kind) { // all holders have the same kind
		return false
	}
	if r.kind == engine.Permit && len(l.holders) >= r.permits {
		return false
	}
	if behindReaders && r.kind == engine.Shared { // the search would take long if they are many
		return true
	}
	for _, w := range l.queue {
		if w.order >= r.order {
			break
		}
		if w.kind != engine.Shared || r.kind != engine.Shared {
			return false
		}
	}
	return true
}

// remove removes r from a list that is sorted by compare, if it is there.
func remove(list []*request, r *request, compare func(a, b *request) int) []*request {
	i, found := slices.BinarySearchFunc(list, r, compare)
	if !found {
		return list
	}
	if i == 0 { // the usual case, without shifting the rest
		list[0] = nil
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}
