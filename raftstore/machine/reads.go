package machine

import (
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// List returns the names of the locks in use that begin with prefix and come after the name
// after, in ascending order, at most limit of them. The next page begins after the last
// name.
func (m *Machine) List(prefix string, after fencing.Resource, limit int) []fencing.Resource {
	return m.names.page(prefix, after, limit, m.locks)
}

// InspectFirst returns the status of a lock with at most n holders and n waiters, and how
// many of each it has. orders has the Order of these waiters.
func (m *Machine) InspectFirst(resource fencing.Resource, n int) (status engine.Status, holders, waiters int,
	orders []uint64) {
	status = engine.Status{Resource: resource, Mode: m.modeOf(resource)}
	l := m.locks[resource]
	if l == nil {
		return status, 0, 0, nil
	}
	for _, h := range l.holders[:min(n, len(l.holders))] {
		status.Holders = append(status.Holders, h.party())
	}
	for _, w := range l.queue[:min(n, len(l.queue))] {
		status.Waiters, orders = append(status.Waiters, w.party()), append(orders, w.order)
	}
	status.Delayed, status.Permits = l.delay != nil, l.permits()
	return status, len(l.holders), len(l.queue), orders
}

// Summary has figures about a lock in use.
type Summary struct {
	Resource         fencing.Resource
	Holders, Waiters int
	Oldest           fencing.Token // of the first holder, or fencing.None
}

// Summaries returns the locks in use after a name in ascending order, at most limit of
// them.
func (m *Machine) Summaries(after fencing.Resource, limit int) []Summary {
	var list []Summary
	for _, name := range m.names.page("", after, limit, m.locks) {
		l := m.locks[name]
		s := Summary{Resource: name, Holders: len(l.holders), Waiters: len(l.queue)}
		if len(l.holders) > 0 {
			s.Oldest = l.holders[0].token
		}
		list = append(list, s)
	}
	return list
}

// Search looks at the locks in use after a name in ascending order, at most limit of them, and
// returns those where the name or the user of one of their first n holders or waiters matches.
// The next page begins after next, which is empty after the last one.
func (m *Machine) Search(matches func(string) bool, after fencing.Resource, limit, n int) (found []fencing.Resource,
	next fencing.Resource) {
	names := m.names.page("", after, limit, m.locks)
	has := func(r *request) bool { return matches(r.holder) || matches(r.session.user) }
	for _, name := range names {
		l := m.locks[name]
		if slices.ContainsFunc(l.holders[:min(n, len(l.holders))], has) ||
			slices.ContainsFunc(l.queue[:min(n, len(l.queue))], has) {
			found = append(found, name)
		}
	}
	if len(names) == limit {
		next = names[limit-1]
	}
	return found, next
}

// Requests returns the number of requests of a session. open is false if there is no such
// session.
func (m *Machine) Requests(id engine.SessionID) (n int, open bool) {
	s := m.sessions[id]
	if s == nil {
		return 0, false
	}
	return len(s.requests), true
}

// Hold is a grant of a session.
type Hold struct {
	Nonce engine.Nonce
	Token fencing.Token
}

// Holds reads the grants of a session in pieces, in the order of their tokens. The machine may
// change in between: a grant that is added after the first piece may be missing.
type Holds struct {
	session *session
	last    *request // nil before the first piece
}

// Holds returns the grants of an open session, nil if there is no such session.
func (m *Machine) Holds(id engine.SessionID, incarnation uint64) *Holds {
	if s := m.incarnate(id, incarnation); s != nil {
		return &Holds{session: s}
	}
	return nil
}

// EndingHolds returns the grants that a session has left after its end, nil if it has none.
func (m *Machine) EndingHolds(incarnation uint64) *Holds {
	if s := m.ending.numbers[incarnation]; s != nil {
		return &Holds{session: s}
	}
	return nil
}

// Next visits at most limit grants and returns those that have not ended meanwhile. more is
// false after the last piece. A nil Holds has no grants.
func (h *Holds) Next(limit int) (page []Hold, more bool) {
	if h == nil {
		return nil, false
	}
	next := h.session.holding.first
	if h.last != nil {
		next = h.last.next
	}
	for ; next != nil && limit > 0; limit-- {
		if h.session.requests[next.nonce] == next { // otherwise it was reached from one that has ended, too
			page = append(page, Hold{next.nonce, next.token})
		}
		h.last, next = next, next.next
	}
	return page, next != nil
}

// holdsPage is the number of grants that AllHolds reads without a pause.
const holdsPage = 1000

// AllHolds returns the grants of a session; open is false if it has ended. It reads them in
// pieces, so that a large session does not delay others: read calls look with the machine,
// under its lock.
func AllHolds(read func(look func(m *Machine)), id engine.SessionID, incarnation uint64) (all []Hold, open bool) {
	var holds *Holds
	for more := true; more; {
		read(func(m *Machine) {
			if open = m.incarnate(id, incarnation) != nil; !open {
				more = false
				return
			}
			if holds == nil {
				holds = m.Holds(id, incarnation)
			}
			var page []Hold
			page, more = holds.Next(holdsPage)
			all = append(all, page...)
		})
	}
	return all, open
}

// Attempt returns the outcome of an attempt: Granted, Queued, Ended if it has ended or is
// unknown, or NoSession.
func (m *Machine) Attempt(id engine.SessionID, incarnation uint64, nonce engine.Nonce) Result {
	s := m.incarnate(id, incarnation)
	if s == nil {
		return Result{Code: NoSession}
	}
	if r := s.requests[nonce]; r != nil {
		return m.outcome(r)
	}
	return Result{Code: Ended}
}

// Routable reports whether this machine may grant the locks: it returns Done, or Migrating
// or WrongMode for the first lock that it may not grant.
func (m *Machine) Routable(resources []fencing.Resource) Result {
	if result, ok := m.checkModes(&engine.Request{Resources: resources}); !ok {
		return result
	}
	return Result{Code: Done}
}

// Counts has the sizes of the machine's state.
type Counts struct {
	Sessions, Locks, Holders, Waiters int
}

// Count returns the sizes of the machine's state.
func (m *Machine) Count() Counts {
	return Counts{Sessions: len(m.sessions), Locks: len(m.locks), Holders: m.holders, Waiters: m.waiters}
}
