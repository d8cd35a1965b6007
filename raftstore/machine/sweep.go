package machine

import (
	"iter"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// visitsPerEnd is the number of locks that sweeps may visit for each request that an EndRequests
// may end. Most visits end nothing, and take a small part of the time.
const visitsPerEnd = 20

// startSweep starts a sweep of the locks of a prefix that begins to migrate to efficiency mode, or that
// migrates now without waiting for leases. EndRequests visits the locks, some at a time and in
// ascending order: it cancels their waiters, and ends their leases and delays if the migration does
// not wait. Waiters that it has not reached keep their places, but are granted nothing.
func (m *Machine) startSweep(prefix string) {
	if !m.nothingToSweep(prefix) {
		m.sweeps[prefix] = ""
	}
}

// nothingToSweep reports whether a sweep of a prefix has nothing to end, however many locks are held.
func (m *Machine) nothingToSweep(prefix string) bool {
	mv := m.migrations[prefix]
	return m.waiters == 0 && (mv == nil || !mv.now)
}

// work is what one command may still do.
type work struct {
	limit  int                // of freed, or one request for more locks
	freed  []fencing.Resource // the locks of requests and delays that have ended
	visits int                // of locks
}

func (w *work) fits(locks int) bool {
	return len(w.freed) < w.limit && (len(w.freed) == 0 || len(w.freed)+locks <= w.limit)
}

// sweep continues the sweeps, and frees at most limit locks, or those of one request for more.
func (m *Machine) sweep(limit int) {
	w := &work{limit: limit, visits: limit * visitsPerEnd}
	for _, prefix := range sortedKeys(m.sweeps) {
		if m.sweepPrefix(prefix, w) {
			delete(m.sweeps, prefix)
		}
	}
	m.grantFreed(w.freed)
}

// sweepPrefix continues one sweep, and reports whether it is complete.
func (m *Machine) sweepPrefix(prefix string, w *work) bool {
	if m.nothingToSweep(prefix) {
		return true
	}
	for name := range m.locksAfter(prefix, m.sweeps[prefix]) {
		if w.visits == 0 || !m.sweepLock(name, w) {
			return false
		}
		w.visits--
		m.sweeps[prefix] = name
		if m.nothingToSweep(prefix) {
			return true
		}
	}
	return true
}

// sweepLock ends what a migration ends of one lock. It reports false if something is left. A lock
// that does not migrate any more is granted to the next waiter, which the migration has delayed.
func (m *Machine) sweepLock(name fencing.Resource, w *work) bool {
	l, mv := m.locks[name], m.migrations[m.policies.Match(name).Prefix]
	switch {
	case mv == nil && len(l.queue) == 0:
		return true
	case mv == nil && w.fits(1):
		w.freed = append(w.freed, name)
		return true
	case mv == nil:
		return false
	}
	for len(l.queue) > 0 && w.fits(len(l.queue[0].resources)) { // the attempt has not ended and may be repeated
		w.freed = append(w.freed, l.queue[0].resources...)
		m.remove(l.queue[0], EventCancelled)
	}
	if !mv.now {
		return len(l.queue) == 0
	}
	for len(l.holders) > 0 && w.fits(len(l.holders[0].resources)) { // no lock delay begins
		r := l.holders[0]
		w.freed = append(w.freed, r.resources...)
		m.remove(r, EventBroken)
		m.endAttempt(r.session, r.nonce)
	}
	if l.delay != nil && w.fits(1) {
		m.openLock(name, l)
		w.freed = append(w.freed, name)
	}
	return l.unused()
}

// unswept reports whether a sweep has not visited a lock yet.
func (m *Machine) unswept(name fencing.Resource) bool {
	for _, prefix := range sortedKeys(m.sweeps) {
		if strings.HasPrefix(string(name), prefix) && name > m.sweeps[prefix] {
			return true
		}
	}
	return false
}

// locksAfter returns the locks in use whose names begin with prefix and come after the name
// after, in ascending order. It does not read all locks to find the first ones. The set of locks must not
// change meanwhile.
func (m *Machine) locksAfter(prefix string, after fencing.Resource) iter.Seq[fencing.Resource] {
	return func(yield func(fencing.Resource) bool) {
		for {
			page := m.names.page(prefix, after, maxBlock, m.locks)
			for _, name := range page {
				if !yield(name) {
					return
				}
			}
			if len(page) < maxBlock {
				return
			}
			after = page[maxBlock-1]
		}
	}
}

// locksOf returns the locks in use for which the policy with this prefix is the longest match, in
// ascending order. It skips the locks of a longer prefix without reading them.
func (m *Machine) locksOf(prefix string) iter.Seq[fencing.Resource] {
	return func(yield func(fencing.Resource) bool) {
		after, more := fencing.Resource(""), true
		for more {
			more = false
			for name := range m.locksAfter(prefix, after) {
				if longer := m.policies.Match(name).Prefix; longer != prefix {
					after, more = fencing.Resource(longer+"\xff"), true // after all names with this prefix: they are UTF-8
					break
				}
				if !yield(name) {
					return
				}
			}
		}
	}
}
