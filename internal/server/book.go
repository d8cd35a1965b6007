package server

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// book is what this member knows of the locks of the efficiency mode: what it
// has granted or found again, and who waits here. Redis has the truth, but no
// list of it. All calls go through the leader, so its book has everything but
// leases of an earlier leader whose holders have not been heard of since.
type book struct {
	clock lease.Clock
	feed  *Feed

	mu    sync.Mutex
	holds map[attempt]*hold
	waits map[attempt]*wait
	locks map[fencing.Resource]map[attempt]bool // index of both
	last  uint64                                // of wait.order
}

// attempt is the identity of an acquire.
type attempt struct {
	session lease.SessionID
	nonce   lease.Nonce
}

// hold is a grant of the efficiency mode.
type hold struct {
	entry     *entry
	party     lease.Party
	resources []fencing.Resource
	since     lease.Instant // when it was granted, or before it was prolonged
}

// wait is one who waits in the efficiency mode.
type wait struct {
	party     lease.Party
	resources []fencing.Resource
	order     uint64
}

func newBook(clock lease.Clock, feed *Feed) *book {
	return &book{clock: clock, feed: feed, holds: map[attempt]*hold{}, waits: map[attempt]*wait{}, locks: map[fencing.Resource]map[attempt]bool{}}
}

func partyOf(id lease.SessionID, request *lease.Request) lease.Party {
	return lease.Party{Session: id, Nonce: request.Nonce, Holder: request.Holder, Metadata: request.Metadata, Kind: request.Kind}
}

// waiting notes one who waits; the returned function ends that.
func (b *book) waiting(id lease.SessionID, request *lease.Request) (done func()) {
	key := attempt{id, request.Nonce}
	b.mu.Lock()
	b.last++
	w := &wait{party: partyOf(id, request), resources: request.Resources, order: b.last}
	b.waits[key] = w
	b.index(key, w.resources)
	b.mu.Unlock()
	b.feed.touch(request.Resources...)
	return func() {
		b.mu.Lock()
		if b.waits[key] == w {
			delete(b.waits, key)
			b.tidy(key, w.resources)
		}
		b.mu.Unlock()
		b.feed.touch(w.resources...)
	}
}

// granted notes a grant, or that it was found again.
func (b *book) granted(e *entry, request *lease.Request, token fencing.Token, since lease.Instant) {
	key := attempt{e.id, request.Nonce}
	h := &hold{entry: e, party: partyOf(e.id, request), resources: request.Resources, since: since}
	h.party.Token = token
	b.mu.Lock()
	b.holds[key] = h
	delete(b.waits, key) // in one step: who is granted has not left the queue
	b.index(key, h.resources)
	b.mu.Unlock()
	b.feed.touch(request.Resources...)
}

// prolonged notes a renewal of all that a session holds, but for those failed.
func (b *book) prolonged(id lease.SessionID, nonces []lease.Nonce, failed []lease.Nonce, since lease.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, nonce := range nonces {
		if h := b.holds[attempt{id, nonce}]; h != nil && !slices.Contains(failed, nonce) {
			h.since = since
		}
	}
}

// ended notes the end of a grant. Why is "" if it is not known.
func (b *book) ended(id lease.SessionID, nonce lease.Nonce, why string) {
	key := attempt{id, nonce}
	if why != "" {
		b.feed.why.note(reasonKey{session: id, nonce: nonce}, why)
	}
	b.mu.Lock()
	h := b.holds[key]
	if h != nil {
		delete(b.holds, key)
		b.tidy(key, h.resources)
	}
	b.mu.Unlock()
	if h != nil {
		b.feed.touch(h.resources...)
	}
}

// sweep forgets grants that were not prolonged in time, and everything if this
// member does not lead: it is not told any more.
func (b *book) sweep(leads bool) {
	now := b.clock.Now()
	b.mu.Lock()
	var old []attempt
	for key, h := range b.holds {
		if !leads || now.Since(h.since) > h.entry.fastTTL() {
			old = append(old, key)
		}
	}
	b.mu.Unlock()
	for _, key := range old {
		b.ended(key.session, key.nonce, "")
	}
}

// index is called with mu held, as is tidy.
func (b *book) index(key attempt, resources []fencing.Resource) {
	for _, name := range resources {
		if b.locks[name] == nil {
			b.locks[name] = map[attempt]bool{}
		}
		b.locks[name][key] = true
	}
}

func (b *book) tidy(key attempt, resources []fencing.Resource) {
	if b.holds[key] != nil || b.waits[key] != nil {
		return
	}
	for _, name := range resources {
		if delete(b.locks[name], key); len(b.locks[name]) == 0 {
			delete(b.locks, name)
		}
	}
}

// status is what is known of a lock.
func (b *book) status(name fencing.Resource) lease.Status {
	now := b.clock.Now()
	status := lease.Status{Resource: name, Mode: lease.Efficiency}
	b.mu.Lock()
	defer b.mu.Unlock()
	var waits []*wait
	for key := range b.locks[name] {
		if h := b.holds[key]; h != nil {
			p := h.party
			p.TTL = max(0, h.entry.fastTTL()-now.Since(h.since))
			status.Holders = append(status.Holders, p)
		} else if w := b.waits[key]; w != nil {
			waits = append(waits, w)
		}
	}
	slices.SortFunc(status.Holders, func(x, y lease.Party) int { return cmp.Compare(x.Token, y.Token) })
	slices.SortFunc(waits, func(x, y *wait) int { return cmp.Compare(x.order, y.order) })
	for _, w := range waits {
		status.Waiters = append(status.Waiters, w.party)
	}
	return status
}

// names are the locks in use with a prefix, in order, after one of them, and at
// most so many.
func (b *book) names(prefix string, after fencing.Resource, limit int) []fencing.Resource {
	b.mu.Lock()
	var found []fencing.Resource
	for name := range b.locks {
		if strings.HasPrefix(string(name), prefix) && name > after {
			found = append(found, name)
		}
	}
	b.mu.Unlock()
	slices.Sort(found)
	return found[:min(limit, len(found))]
}
