package machine

import (
	"cmp"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// endings has the sessions that have ended and may still have requests, in the order in
// which their requests end.
type endings struct {
	queue   []*session
	numbers map[uint64]*session // by incarnation
}

// endSession ends a session, if there is one. Its requests remain for EndRequests.
func (m *Machine) endSession(s *session, how EventType) Result {
	if s == nil {
		return Result{Code: NoSession}
	}
	m.beforeChange(s)
	delete(m.sessions, s.id)
	s.usage.sessions--
	s.how, s.ended, s.forgotten = how, nil, 0 // no late copy of an attempt reaches it any more
	if len(s.requests) == 0 {
		m.forget(s)
		return Result{Code: Done}
	}
	m.ending.add(s)
	return Result{Code: Done}
}

func (e *endings) add(s *session) {
	e.queue = append(e.queue, s)
	e.numbers[s.incarnation] = s
}

// forget removes a session that has ended and has no requests.
func (m *Machine) forget(s *session) {
	m.beforeChange(s)
	m.everySession.remove(s)
	if *s.usage == (usage{}) && m.usage[s.user] == s.usage { // not that of a session that was opened since
		delete(m.usage, s.user)
	}
}

func (c *EndRequests) apply(m *Machine) Result {
	gone, freed := m.endRequests(c.Max)
	m.sweep(c.Max - freed)
	result := Result{Code: Done, Gone: gone}
	if m.HasEnding() {
		result.Code = Ending
	}
	return result
}

// endRequests ends requests for at most limit locks, or one request for more, and returns
// the sessions that have no request any more, and the number of locks. It ends the waiters of a session first,
// because they would block the handoff of what the session holds. A session that still has
// requests goes to the end of the queue, so that small sessions do not wait for a large one.
func (m *Machine) endRequests(limit int) (gone []Incarnation, freed int) {
	var touched []fencing.Resource
	var last *session
	for visited := 0; len(m.ending.queue) > 0 && max(visited, len(touched)) < limit; visited++ {
		s := m.ending.queue[0]
		r := cmp.Or(s.waiting.first, s.holding.first)
		if r != nil { // otherwise an operator has broken its last lease
			if len(touched) > 0 && len(touched)+len(r.resources) > limit {
				break
			}
			touched = append(touched, r.resources...)
			m.free(r, s.how)
			last = s
		}
		if len(s.requests) == 0 {
			gone = append(gone, Incarnation{s.id, s.incarnation})
			m.ending.queue[0] = nil
			m.ending.queue = m.ending.queue[1:]
			delete(m.ending.numbers, s.incarnation)
			m.forget(s)
		}
	}
	if queue := m.ending.queue; len(queue) > 1 && queue[0] == last {
		m.ending.queue = append(queue[1:], last)
	}
	m.grantFreed(touched)
	return gone, len(touched)
}

// Ending reports whether a session has ended and still has requests.
func (m *Machine) Ending(incarnation uint64) bool { return m.ending.numbers[incarnation] != nil }

// HasEnding reports whether an EndRequests is necessary: a session has ended and still has
// requests, or a sweep is not complete.
func (m *Machine) HasEnding() bool { return len(m.sweeps) > 0 || len(m.ending.queue) > 0 }

// endAttempt marks an attempt as ended, unless its session has ended.
func (m *Machine) endAttempt(s *session, nonce engine.Nonce) {
	if s.how == 0 {
		m.beforeChange(s)
		s.end(nonce)
	}
}

// attach adds a request to its session.
func (m *Machine) attach(r *request) {
	r.session.requests[r.nonce] = r
	r.session.listOf(r).add(r)
	m.everyRequest.add(r, m.images)
}

// detach removes a request from its session.
func (m *Machine) detach(r *request) {
	if m.image != nil {
		m.image.copyRequest(r)
	}
	delete(r.session.requests, r.nonce)
	r.session.listOf(r).remove(r)
	m.everyRequest.remove(r)
}

// substitute puts a copy of a request into its place: the order of the list matters.
func (m *Machine) substitute(r, updated *request) {
	if m.image != nil {
		m.image.copyRequest(r)
	}
	updated.image = m.images
	r.session.requests[r.nonce] = updated
	r.session.listOf(r).substitute(updated)
	m.everyRequest.list[r.at] = updated
}

func (s *session) listOf(r *request) *requestList {
	if r.token == fencing.None {
		return &s.waiting
	}
	return &s.holding
}

// requestList is a list of requests in the order in which they were added. A request that was
// removed keeps its next, so that Holds continues after it.
type requestList struct{ first, last *request }

func (l *requestList) add(r *request) {
	r.previous, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

func (l *requestList) substitute(updated *request) {
	if updated.previous == nil {
		l.first = updated
	} else {
		updated.previous.next = updated
	}
	if updated.next == nil {
		l.last = updated
	} else {
		updated.next.previous = updated
	}
}

func (l *requestList) remove(r *request) {
	if r.previous == nil {
		l.first = r.next
	} else {
		r.previous.next = r.next
	}
	if r.next == nil {
		l.last = r.previous
	} else {
		r.next.previous = r.previous
	}
	r.previous = nil
}
