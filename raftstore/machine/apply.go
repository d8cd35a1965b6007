package machine

import (
	"cmp"
	"math"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func (c *Lead) apply(m *Machine) Result {
	m.generation++
	return Result{Code: Done, Generation: m.generation}
}

func (c *OpenSession) apply(m *Machine) Result {
	s := m.sessions[c.Session]
	if s == nil {
		if u := m.usage[c.User]; u != nil && exceeded(u.sessions, c.Limits.SessionsPerUser) {
			return Result{Code: Limited, Limit: &LimitError{Limit: SessionsPerUserName, Max: c.Limits.SessionsPerUser,
				User: c.User}}
		}
		s = &session{id: c.Session, incarnation: m.nextOrder(), ttl: c.TTL, user: c.User,
			requests: map[engine.Nonce]*request{}}
		m.addSession(s)
	}
	if s.user != c.User {
		return Result{Code: OtherUser}
	}
	return Result{Code: Done, Incarnation: s.incarnation}
}

func (c *CloseSession) apply(m *Machine) Result {
	return m.endSession(m.incarnate(c.Session, c.Incarnation), EventReleased)
}

func (c *Expire) apply(m *Machine) Result {
	if c.Generation != m.generation {
		return Result{Code: Outdated}
	}
	return m.endSession(m.incarnate(c.Session, c.Incarnation), EventExpired)
}

// incarnate returns the session with this id and incarnation, or nil if it has ended.
// Every command of a session looks it up here.
func (m *Machine) incarnate(id engine.SessionID, incarnation uint64) *session {
	if s := m.sessions[id]; s != nil && s.incarnation == incarnation {
		return s
	}
	return nil
}

func (c *Acquire) apply(m *Machine) Result {
	s := m.incarnate(c.Session, c.Incarnation)
	if s == nil {
		return Result{Code: NoSession}
	}
	q := &c.Request
	if r := s.requests[q.Nonce]; r != nil {
		if r.kind != q.Kind || !slices.Equal(r.resources, q.Resources) {
			return Result{Code: OtherRequest}
		}
		if r.token == fencing.None && !q.Wait { // a waiter cannot be granted now
			m.free(r, EventReleased)
			m.grantWaiters(r.resources)
			return Result{Code: Held}
		}
		return m.outcome(r)
	}
	if s.ended.has(uint64(q.Nonce)) {
		return Result{Code: Ended}
	}
	if uint64(q.Nonce) <= s.forgotten {
		return Result{Code: LowNonce, Nonce: engine.Nonce(s.forgotten)}
	}
	if result, ok := m.checkModes(q); !ok {
		if result.Code == WrongMode {
			m.endAttempt(s, q.Nonce)
		}
		return result
	}
	if have := m.permitsOf(q); have != q.Permits {
		m.endAttempt(s, q.Nonce)
		return Result{Code: OtherPermits, Permits: have, Resource: q.Resources[0]}
	}
	if m.lastToken == fencing.MaxToken {
		return Result{Code: Exhausted}
	}
	r := &request{session: s, nonce: q.Nonce, order: m.nextOrder(), resources: q.Resources, kind: q.Kind,
		permits: q.Permits, holder: q.Holder, metadata: q.Metadata}
	granted := m.grantable(r, nil)
	if !granted && !q.Wait {
		m.endAttempt(s, q.Nonce) // otherwise a late copy of this attempt could be granted
		return Result{Code: Held}
	}
	if limit := m.checkLimits(r, granted, &c.Limits); limit != nil {
		return Result{Code: Limited, Limit: limit}
	}
	if granted { // it does not queue
		for _, name := range r.resources {
			m.lock(name)
		}
		m.grant(r, &freeSlots{})
		return m.outcome(r)
	}
	m.attach(r)
	m.countWaiter(s, 1)
	m.enqueue(r)
	m.emit(EventQueued, r)
	return m.outcome(r)
}

func (c *Release) apply(m *Machine) Result {
	s := m.incarnate(c.Session, c.Incarnation)
	if s == nil {
		return Result{Code: NoSession}
	}
	r := s.requests[c.Nonce]
	if r == nil {
		m.endAttempt(s, c.Nonce)
		return Result{Code: Ended}
	}
	m.free(r, EventReleased)
	m.grantWaiters(r.resources)
	return Result{Code: Done}
}

func (c *Update) apply(m *Machine) Result {
	s := m.incarnate(c.Session, c.Incarnation)
	if s == nil {
		return Result{Code: NoSession}
	}
	if r := s.requests[c.Nonce]; c.Nonce != 0 {
		if r == nil || r.token == fencing.None {
			return Result{Code: NotHeld}
		}
		if len(c.Metadata) > 0 {
			m.setMetadata(r, c.Metadata)
		}
	}
	if c.TTL > s.ttl {
		m.beforeChange(s)
		s.ttl = c.TTL
	}
	return Result{Code: Done}
}

// setMetadata replaces a holder by a copy with other metadata: an Image may have the holder.
func (m *Machine) setMetadata(r *request, metadata map[string]string) {
	updated := *r
	updated.metadata = metadata
	m.substitute(r, &updated)
	for _, name := range r.resources {
		holders := m.locks[name].holders
		holders[slices.Index(holders, r)] = &updated
	}
}

func (c *Break) apply(m *Machine) Result {
	l := m.locks[c.Resource]
	if l == nil {
		return Result{Code: NotHeld}
	}
	i := slices.IndexFunc(l.holders, func(h *request) bool { return h.token == c.Token })
	if i < 0 {
		return Result{Code: NotHeld}
	}
	r := l.holders[i]
	m.free(r, EventBroken)
	m.grantWaiters(r.resources)
	return Result{Code: Done}
}

func (c *EndDelay) apply(m *Machine) Result {
	l := m.locks[c.Resource]
	if l == nil || l.delay == nil || l.delay.number != c.Delay || c.Generation != m.generation {
		return Result{Code: Outdated}
	}
	m.openLock(c.Resource, l)
	m.grantWaiters([]fencing.Resource{c.Resource})
	return Result{Code: Done}
}

// openLock ends the lock delay of a lock.
func (m *Machine) openLock(name fencing.Resource, l *lock) {
	m.setDelay(name, l, 0)
	m.events = append(m.events, Event{Type: EventOpened, Resources: []fencing.Resource{name}, Mode: m.modeOf(name)})
}

func (c *RaiseFloor) apply(m *Machine) Result {
	last := max(m.lastToken, m.ceiling)
	if c.By > fencing.MaxToken-last {
		return Result{Code: Exhausted}
	}
	m.lastToken = last + c.By
	return Result{Code: Done, Token: m.lastToken}
}

// orderStep is the step by which EndSessions raises the order, and with it the
// incarnations. It exceeds what they can have advanced since the log was rolled back.
const orderStep = 1 << 32

func (c *EndSessions) apply(m *Machine) Result {
	for _, id := range m.sessionIDs() {
		m.endSession(m.sessions[id], EventExpired)
	}
	m.endRequests(math.MaxInt)
	m.sweep(math.MaxInt32)
	m.order = max(m.order, c.Above) + orderStep
	return Result{Code: Done}
}

// checkModes reports whether all locks of a request are in correctness mode, which this
// machine grants, and none of them is in a migration. An attempt that is refused
// because of a migration has not ended: it may be repeated when the migration is
// complete.
//
// In a log that was rolled back, a lock in correctness mode may have been in efficiency
// mode in the meantime, with tokens that only the Redis nodes know. So no lock is
// granted before the log has caught up with the nodes.
func (m *Machine) checkModes(q *engine.Request) (Result, bool) {
	if m.restored {
		return Result{Code: NotReady, Resource: q.Resources[0]}, false
	}
	for _, name := range q.Resources {
		p := m.policies.For(name)
		if p.Next != engine.AnyMode {
			return Result{Code: Migrating, Mode: p.Mode, Next: p.Next, Resource: name}, false
		}
		if mode := modeOf(p); mode != engine.Correctness || q.Mode == engine.Efficiency {
			return Result{Code: WrongMode, Mode: mode, Resource: name}, false
		}
	}
	return Result{}, true
}

// permitsOf returns the number of permits of the lock for which q requests one, or
// q.Permits if nobody holds or waits for its permits. The number belongs to the lock:
// with different numbers, a caller would exceed the concurrency that others rely on.
func (m *Machine) permitsOf(q *engine.Request) int {
	if q.Kind != engine.Permit {
		return q.Permits
	}
	if l := m.locks[q.Resources[0]]; l != nil {
		return cmp.Or(l.permits(), q.Permits)
	}
	return q.Permits
}

// outcome returns the result of a live request.
func (m *Machine) outcome(r *request) Result {
	if r.token == fencing.None {
		return Result{Code: Queued}
	}
	return Result{Code: Granted, Token: r.token, Slot: r.slot, Mode: m.modeOf(r.resources[0])}
}

// grantable reports whether a request can be granted. It is the only grant rule. Before r, only
// readers wait for behind, which may be nil.
func (m *Machine) grantable(r *request, behind *lock) bool {
	if m.lastToken == fencing.MaxToken || r.session.how != 0 {
		return false
	}
	for _, name := range r.resources {
		if l := m.locks[name]; l != nil && !l.admits(r, l == behind) {
			return false
		}
	}
	return len(m.migrations) == 0 || !slices.ContainsFunc(r.resources, m.isMigrating)
}

// grant makes a request a holder. The request is not in a queue any more. free has the slots
// of its lock, if it is for a permit.
func (m *Machine) grant(r *request, free *freeSlots) {
	if r.kind == engine.Permit {
		r.slot = free.take(m.locks[r.resources[0]], r.permits)
	}
	m.lastToken++
	r.token = m.lastToken
	m.attach(r)
	m.countHolder(r.session, 1)
	for _, name := range r.resources {
		l := m.locks[name]
		l.holders = append(l.holders, r)
	}
	m.emit(EventGranted, r)
}

// dequeue removes a waiter from its queues.
func (m *Machine) dequeue(r *request) {
	m.countWaiter(r.session, -1)
	for _, name := range r.resources {
		m.leaveQueue(m.locks[name], r)
	}
}

// free ends an attempt and removes its request from all its locks. If the holder did
// not release the lease itself, a lock delay begins where the policy has one. The caller
// then calls grantWaiters for the resources.
func (m *Machine) free(r *request, how EventType) {
	if r.token == fencing.None {
		how = EventCancelled
	}
	m.remove(r, how)
	if how == EventExpired || how == EventBroken {
		for _, name := range r.resources {
			if m.lockDelay(name) > 0 {
				l := m.locks[name]
				m.setDelay(name, l, m.nextOrder())
				m.events = append(m.events, m.delayEvent(name, l))
			}
		}
	}
	m.endAttempt(r.session, r.nonce)
}

// remove removes a request from all its locks and from its session.
func (m *Machine) remove(r *request, how EventType) {
	if r.token == fencing.None {
		m.countWaiter(r.session, -1)
	} else {
		m.countHolder(r.session, -1)
	}
	m.emit(how, r)
	for _, name := range r.resources {
		l := m.locks[name]
		m.leaveQueue(l, r)
		l.holders = remove(l.holders, r, byToken)
	}
	m.detach(r)
}

func (m *Machine) delayEvent(name fencing.Resource, l *lock) Event {
	return Event{Type: EventDelayed, Resources: []fencing.Resource{name}, Mode: m.modeOf(name), DelayID: l.delay.number,
		Delay: m.lockDelay(name)}
}

// grantWaiters grants the requests that have become grantable on these resources. Only a
// reader can overtake a waiter that keeps waiting, and only if that is a reader too.
func (m *Machine) grantWaiters(resources []fencing.Resource) {
	for _, name := range resources {
		l := m.locks[name]
		if l == nil {
			continue
		}
		var free freeSlots
		for i := 0; i < len(l.queue); {
			r := l.queue[i]
			if m.grantable(r, l) {
				m.dequeue(r)
				m.detach(r)
				granted := *r // an Image may have the waiter
				m.grant(&granted, &free)
				continue
			}
			if r.kind != engine.Shared {
				break
			}
			i++
		}
		if l.unused() {
			delete(m.locks, name)
			m.names.remove(name)
		}
	}
}

// grantFreed is grantWaiters for resources in any order, possibly with duplicates.
func (m *Machine) grantFreed(resources []fencing.Resource) {
	slices.Sort(resources)
	m.grantWaiters(slices.Compact(resources))
}
