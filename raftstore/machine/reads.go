package machine

import (
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// List returns the locks in use whose names begin with prefix and come after the name
// after, in ascending order, at most limit of them. The next page begins after the last
// name.
func (m *Machine) List(prefix string, after fencing.Resource, limit int) []engine.Status {
	var list []engine.Status
	for _, name := range m.names.page(prefix, after, limit, m.locks) {
		list = append(list, m.Inspect(name))
	}
	return list
}

// InspectFirst returns the status of a lock with at most n holders and n waiters, and how
// many of each it has. orders has the Order of these waiters.
func (m *Machine) InspectFirst(resource fencing.Resource, n int) (status engine.Status, holders, waiters int, orders []uint64) {
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
	status.Delayed = l.delay != 0
	return status, len(l.holders), len(l.queue), orders
}

// Orders returns the Order of each waiter of a lock, in the order of the queue.
func (m *Machine) Orders(resource fencing.Resource) []uint64 {
	l := m.locks[resource]
	if l == nil {
		return nil
	}
	orders := make([]uint64, len(l.queue))
	for i, w := range l.queue {
		orders[i] = w.order
	}
	return orders
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

// Request is one attempt of a session: a holder if it has a token, else a
// waiter.
type Request struct {
	Resources []fencing.Resource
	Party     engine.Party
}

// Session returns the TTL and the requests of a session, in the order of the requests. ok
// is false if there is no such session.
func (m *Machine) Session(id engine.SessionID) (ttl time.Duration, requests []Request, ok bool) {
	s := m.sessions[id]
	if s == nil {
		return 0, nil, false
	}
	return s.ttl, s.copyRequests(), true
}

// EndingRequests returns the requests of a session that has ended.
func (m *Machine) EndingRequests(incarnation uint64) []Request {
	if s := m.ending.numbers[incarnation]; s != nil {
		return s.copyRequests()
	}
	return nil
}

func (s *session) copyRequests() (requests []Request) {
	for _, r := range requestsOf(s) {
		requests = append(requests, Request{Resources: slices.Clone(r.resources), Party: r.party()})
	}
	return requests
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
