package machine

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// check returns the first invariant of Machine that does not hold. Restore calls it, and
// the tests call it after every command.
func (m *Machine) check() error {
	if err := m.checkTopology(); err != nil {
		return err
	}
	if err := m.checkUsage(); err != nil {
		return err
	}
	tokens := map[fencing.Token]bool{}
	orders := map[uint64]bool{}
	delays := 0
	for _, s := range m.allSessions() {
		if err := m.checkSession(s, tokens, orders); err != nil {
			return fmt.Errorf("session %s: %w", s.id, err)
		}
	}
	for _, name := range sortedKeys(m.locks) {
		l := m.locks[name]
		if err := m.checkLock(l); err != nil {
			return fmt.Errorf("lock %q: %w", string(name), err)
		}
		if m.modeOf(name) != engine.Correctness {
			return fmt.Errorf("lock %q is in use and in efficiency mode", string(name))
		}
		if mv := m.migrations[m.policies.Match(name).Prefix]; mv != nil && (mv.now || len(l.queue) > 0) && !m.unswept(name) {
			return fmt.Errorf("lock %q migrates, and is in use or waited for", string(name))
		}
		if err := m.checkDelay(name, l.delay, orders); err != nil {
			return fmt.Errorf("lock %q: %w", string(name), err)
		}
		if l.delay != nil {
			delays++
		}
	}
	if delays != len(m.everyDelay.list) {
		return fmt.Errorf("%d locks have delays, not %d", delays, len(m.everyDelay.list))
	}
	return m.checkQueues()
}

// checkDelay checks the delay of a lock, if it has one.
func (m *Machine) checkDelay(name fencing.Resource, d *delay, orders map[uint64]bool) error {
	switch {
	case d == nil:
		return nil
	case d.number > m.order || orders[d.number]:
		return fmt.Errorf("delay %d is above the last order %d or taken", d.number, m.order)
	case d.name != name || m.everyDelay.list[d.at] != d:
		return fmt.Errorf("its delay %d is not in the index", d.number)
	}
	orders[d.number] = true
	return nil
}

// checkQueues counts the lengths of the queues of all locks.
func (m *Machine) checkQueues() error {
	var counted queueLengths
	for _, name := range sortedKeys(m.locks) {
		for i := range m.locks[name].queue {
			counted.grown(i + 1)
		}
	}
	if !slices.Equal(counted, m.queues) {
		return fmt.Errorf("the lengths of queues are %v, not %v", counted, m.queues)
	}
	return nil
}

// checkUsage counts the sessions and requests of each user.
func (m *Machine) checkUsage() error {
	counted := map[string]usage{}
	for _, s := range m.allSessions() {
		u := counted[s.user]
		if s.how == 0 {
			u.sessions++
		}
		for _, r := range requestsOf(s) {
			if r.token == fencing.None {
				u.waiters++
			} else {
				u.holders++
			}
		}
		counted[s.user] = u
	}
	for _, user := range sortedKeys(m.usage) {
		if *m.usage[user] != counted[user] {
			return fmt.Errorf("user %q uses %v, not %v", user, counted[user], *m.usage[user])
		}
	}
	if len(m.usage) != len(counted) {
		return fmt.Errorf("%d users are counted, not %d", len(m.usage), len(counted))
	}
	return nil
}

// allSessions returns the open sessions, then those that are ending.
func (m *Machine) allSessions() []*session {
	var all []*session
	for _, id := range m.sessionIDs() {
		all = append(all, m.sessions[id])
	}
	return append(all, m.ending.queue...)
}

// checkEnding checks a session's part in the lists of open and ending sessions, and its
// lists of requests.
func (m *Machine) checkEnding(s *session) error {
	ending := m.ending.numbers[s.incarnation] == s
	switch {
	case ending != (s.how != 0) || ending && s.how != EventReleased && s.how != EventExpired:
		return fmt.Errorf("ends with the event %q, but is in the list of ending sessions: %v", s.how, ending)
	case ending && (len(s.ended) > 0 || s.forgotten != 0):
		return fmt.Errorf("has ended and remembers ended attempts")
	case m.everySession.list[s.at] != s:
		return fmt.Errorf("is not in the index")
	}
	n := 0
	for _, list := range []*requestList{&s.waiting, &s.holding} {
		for r := list.first; r != nil; r = r.next {
			if s.requests[r.nonce] != r || (r.token == fencing.None) != (list == &s.waiting) || m.everyRequest.list[r.at] != r {
				return fmt.Errorf("attempt %d is in the wrong list", r.nonce)
			}
			n++
		}
	}
	if n != len(s.requests) {
		return fmt.Errorf("%d of %d requests are in a list", n, len(s.requests))
	}
	return nil
}

func (m *Machine) checkSession(s *session, tokens map[fencing.Token]bool, orders map[uint64]bool) error {
	if err := m.checkEnding(s); err != nil {
		return err
	}
	if s.ttl < engine.MinTTL || s.ttl > engine.MaxTTL {
		return fmt.Errorf("ttl is %v", s.ttl)
	}
	if s.incarnation == 0 || s.incarnation > m.order || orders[s.incarnation] {
		return fmt.Errorf("incarnation %d is 0, above the last order %d or taken", s.incarnation, m.order)
	}
	orders[s.incarnation] = true
	if len(s.ended) > MaxEnded {
		return fmt.Errorf("%d ranges of ended attempts, at most %d are allowed", len(s.ended), MaxEnded)
	}
	for i, x := range s.ended {
		if x.lo <= s.forgotten || x.lo > x.hi || i > 0 && s.ended[i-1].hi >= x.lo-1 {
			return fmt.Errorf("ended attempts are not a set: %v", s.ended)
		}
	}
	for _, r := range requestsOf(s) {
		switch {
		case s.ended.has(uint64(r.nonce)):
			return fmt.Errorf("attempt %d has ended and is live", r.nonce)
		case r.order == 0 || r.order > m.order || orders[r.order]:
			return fmt.Errorf("attempt %d has the order %d of %d", r.nonce, r.order, m.order)
		case r.token > m.lastToken || r.token != fencing.None && tokens[r.token]:
			return fmt.Errorf("attempt %d has the token %d of %d", r.nonce, r.token, m.lastToken)
		case (r.slot != 0) != (r.kind == engine.Permit && r.token != fencing.None) || r.slot > r.permits:
			return fmt.Errorf("attempt %d has the slot %d of %d", r.nonce, r.slot, r.permits)
		case slices.ContainsFunc(r.resources, func(name fencing.Resource) bool {
			return m.modeOf(name) != engine.Correctness
		}):
			return fmt.Errorf("attempt %d has a lock in efficiency mode", r.nonce)
		}
		orders[r.order] = true
		tokens[r.token] = true
	}
	return nil
}

func (m *Machine) checkLock(l *lock) error {
	if l.unused() {
		return fmt.Errorf("is not used")
	}
	slots := map[int]bool{}
	for i, h := range l.holders {
		switch {
		case h.token == fencing.None || i > 0 && l.holders[i-1].token >= h.token:
			return fmt.Errorf("holder %d is out of order", i)
		case i > 0 && !compatible(l.holders[0].kind, h.kind):
			return fmt.Errorf("a holder of kind %s beside one of kind %s", h.kind, l.holders[0].kind)
		case h.kind == engine.Permit && slots[h.slot]:
			return fmt.Errorf("slot %d is taken twice", h.slot)
		}
		slots[h.slot] = true
	}
	for _, r := range slices.Concat(l.holders, l.queue) {
		if r.kind == engine.Permit && r.permits != l.permits() {
			return fmt.Errorf("a request with %d permits beside one with %d", r.permits, l.permits())
		}
	}
	for i, w := range l.queue {
		switch {
		case w.token != fencing.None || i > 0 && l.queue[i-1].order >= w.order:
			return fmt.Errorf("waiter %d is out of order", i)
		case m.grantable(w, nil) && !slices.ContainsFunc(w.resources, m.unswept):
			return fmt.Errorf("waiter %d could be granted", i)
		}
	}
	return nil
}
