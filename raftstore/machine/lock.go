package machine

import (
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// session is one incarnation of a client's session. Its requests are holders and waiters; of the
// attempts that have ended it remembers only the numbers, so that a late copy
// of one is not taken for a new one.
type session struct {
	id          engine.SessionID
	incarnation uint64 // which of the sessions that had this id
	ttlNanos    int64
	requests    map[engine.Nonce]*request
	ended       spans
}

// request is a holder if it has a token, else a waiter.
type request struct {
	session   *session
	nonce     engine.Nonce
	order     uint64 // in which requests were applied
	resources []fencing.Resource
	kind      engine.Kind
	permits   int
	slot      int
	token     fencing.Token
	holder    string
	metadata  map[string]string
}

// lock is a resource that someone holds or wants, or that is delayed. There is
// none for a resource that nobody uses: tokens are global, so that nothing has
// to be remembered of it.
type lock struct {
	holders []*request  // in the order of their tokens
	queue   []*request  // in their order
	delay   uint64      // not 0 while a lock-delay runs: its number
	first   [1]*request // where the only holder of most locks is kept
}

func (l *lock) unused() bool { return len(l.holders) == 0 && len(l.queue) == 0 && l.delay == 0 }

// compatible reports whether two requests may hold one resource side by side,
// as far as their kinds go.
func compatible(a, b engine.Kind) bool { return a == b && a != engine.Exclusive }

// freeSlot is the lowest slot that no holder has, 0 if all of permits are taken.
func (l *lock) freeSlot(permits int) int {
	taken := make([]bool, min(permits, len(l.holders)+1)+1)
	for _, h := range l.holders {
		if h.slot < len(taken) {
			taken[h.slot] = true
		}
	}
	return slices.Index(taken[1:], false) + 1
}

// admits reports whether r may hold this lock beside its holders and before its
// later waiters. Permits queue strictly, since they compete for slots; readers
// pass readers.
func (l *lock) admits(r *request) bool {
	if l.delay != 0 {
		return false
	}
	if len(l.holders) > 0 && !compatible(l.holders[0].kind, r.kind) { // all are of one kind
		return false
	}
	if r.kind == engine.Permit && l.freeSlot(r.permits) == 0 {
		return false
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

func remove(list []*request, r *request) []*request {
	i := slices.Index(list, r)
	if i < 0 {
		return list
	}
	if i == 0 { // the usual case, without moving the rest
		list[0] = nil
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}
