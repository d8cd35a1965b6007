package model

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Property is the name of a property of a lock service in log order.
type Property string

// The properties that a LogChecker checks. T1, T2, T3 and M1 are those of
// docs/GUARANTEES.md; the others define FIFO order, idempotence and wake-ups.
const (
	T1       Property = "T1: no token twice"
	T2       Property = "T2: tokens grow"
	M1       Property = "M1: no conflicting holders"
	Once     Property = "an attempt is granted at most once"
	FIFO     Property = "no waiter is overtaken by a later conflicting request"
	WakeUp   Property = "no waiter is left waiting that could be granted"
	Delay    Property = "nothing is granted during a lock-delay"
	Complete Property = "every change has its event"
	Over     Property = "nothing is granted to a session that has ended"
	Modes    Property = "T3: tokens of a lock grow over both modes"
	Closed   Property = "a lock is not granted while it moves, nor in the other mode"
)

// Violation is a violated property.
type Violation struct {
	Property Property
	Detail   string
}

// Error names the property and what violated it.
func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Property, v.Detail) }

func violated(p Property, format string, args ...any) error {
	return &Violation{Property: p, Detail: fmt.Sprintf(format, args...)}
}

// party is a holder or a waiter, according to the events.
type party struct {
	attempt Attempt
	request engine.Request
	token   fencing.Token
	slot    int
	moved   bool // a waiter for a lock that began to move: it may be granted or cancelled later
}

// LogChecker checks the events of a lock service in log order. Its state is derived
// from events alone.
type LogChecker struct {
	requested map[Attempt]engine.Request
	waiters   []party // in the order in which they were queued
	holders   []party
	granted   map[Attempt]bool // ever, in the current incarnation of the session
	tokens    map[fencing.Token]bool
	last      fencing.Token
	delayed   map[fencing.Resource]bool
	ended     map[Session]bool

	bothModes
}

// NewLogChecker returns a LogChecker for an empty log.
func NewLogChecker() *LogChecker {
	return &LogChecker{requested: map[Attempt]engine.Request{}, granted: map[Attempt]bool{},
		tokens: map[fencing.Token]bool{}, delayed: map[fencing.Resource]bool{}, ended: map[Session]bool{},
		bothModes: bothModes{routes: map[fencing.Resource]Route{}, raft: map[fencing.Resource]fencing.Token{},
			redis: map[fencing.Resource]fencing.Token{}}}
}

// Requested registers the request of an attempt before its events. A copy of an attempt
// that waits or holds changes nothing, whatever it requests.
func (c *LogChecker) Requested(session Session, request engine.Request) {
	attempt := Attempt{session, request.Nonce}
	if find(c.waiters, attempt) < 0 && find(c.holders, attempt) < 0 {
		c.requested[attempt] = request
	}
}

// RaiseFloor requires all later tokens to be above floor.
func (c *LogChecker) RaiseFloor(floor fencing.Token) { c.last = max(c.last, floor) }

// SessionEnded registers the end of a session. Its requests end later. Until then it holds
// what it held and keeps its places in the queues, but nothing is granted to it.
func (c *LogChecker) SessionEnded(s Session) { c.ended[s] = true }

// AllEnded checks that no ended session holds or waits, and that nobody waits for a lock that moves.
func (c *LogChecker) AllEnded() error {
	for _, p := range slices.Concat(c.waiters, c.holders) {
		if c.ended[p.attempt.Session] {
			return violated(Complete, "session %s ended, but its attempt %d did not", p.attempt.Session.ID, p.attempt.Nonce)
		}
	}
	for i, p := range c.waiters {
		for _, name := range p.request.Resources {
			if !c.routes[name].serves() {
				return violated(Closed, "attempt %d waits for %q", p.attempt.Nonce, name)
			}
		}
		c.waiters[i].moved = false
	}
	return nil
}

// Observe checks one event and reports the first property that it violates.
func (c *LogChecker) Observe(e Event) error {
	attempt := Attempt{Session{e.Session, e.Incarnation}, e.Nonce}
	switch e.Kind {
	case WasQueued:
		return c.queued(attempt, e)
	case WasGranted:
		return c.grant(attempt, e)
	case WasCancelled:
		i := find(c.waiters, attempt)
		if i < 0 || e.Token != fencing.None {
			return violated(Complete, "attempt %d was cancelled, but did not wait", e.Nonce)
		}
		c.waiters = slices.Delete(c.waiters, i, i+1)
	case WasReleased, WasExpired, WasBroken:
		i := find(c.holders, attempt)
		if i < 0 || c.holders[i].token != e.Token || c.holders[i].slot != e.Slot {
			return violated(Complete, "attempt %d with token %d was %s, but did not hold", e.Nonce, e.Token, e.Kind)
		}
		c.holders = slices.Delete(c.holders, i, i+1)
	case WasDelayed:
		c.delayed[e.Resources[0]] = true
	case WasOpened:
		if !c.delayed[e.Resources[0]] {
			return violated(Complete, "%q was opened, but was not delayed", e.Resources[0])
		}
		delete(c.delayed, e.Resources[0])
	default:
		return violated(Complete, "unknown event %q", e.Kind)
	}
	return nil
}

func (c *LogChecker) queued(attempt Attempt, e Event) error {
	request, known := c.requested[attempt]
	if !known || !request.Wait || !slices.Equal(request.Resources, e.Resources) {
		return violated(Complete, "attempt %d was queued without such a request", e.Nonce)
	}
	if c.ended[attempt.Session] {
		return violated(Over, "attempt %d was queued", e.Nonce)
	}
	if find(c.waiters, attempt) >= 0 || c.granted[attempt] {
		return violated(Once, "attempt %d was queued again", e.Nonce)
	}
	c.waiters = append(c.waiters, party{attempt: attempt, request: request})
	return nil
}

func (c *LogChecker) grant(attempt Attempt, e Event) error {
	request, known := c.requested[attempt]
	p := party{attempt: attempt, request: request, token: e.Token, slot: e.Slot}
	switch {
	case !known || !slices.Equal(request.Resources, e.Resources):
		return violated(Complete, "attempt %d was granted without such a request", e.Nonce)
	case c.ended[attempt.Session]:
		return violated(Over, "attempt %d was granted", e.Nonce)
	case c.granted[attempt]:
		return violated(Once, "attempt %d was granted again, with token %d", e.Nonce, e.Token)
	case c.tokens[e.Token]:
		return violated(T1, "token %d is granted twice", e.Token)
	case e.Token <= c.last || !e.Token.Valid():
		return violated(T2, "token %d after %d", e.Token, c.last)
	}
	if err := c.checkOtherMode(e); err != nil {
		return err
	}
	ahead := c.waiters
	if i := find(c.waiters, attempt); i >= 0 {
		ahead = c.waiters[:i]
	}
	if err := c.obstacle(p, ahead); err != nil {
		return err
	}
	if (request.Kind == engine.Permit) != (p.slot >= 1 && p.slot <= request.Permits) {
		return violated(M1, "slot %d of %d", p.slot, request.Permits)
	}
	c.waiters = slices.DeleteFunc(c.waiters, func(q party) bool { return q.attempt == attempt })
	c.holders = append(c.holders, p)
	c.granted[attempt] = true
	c.tokens[e.Token] = true
	c.last = e.Token
	return nil
}

// obstacle returns why p may not be granted now, as the violation that a grant would
// be. A slot of 0 stands for any slot.
func (c *LogChecker) obstacle(p party, ahead []party) error {
	for _, name := range p.request.Resources {
		if c.delayed[name] {
			return violated(Delay, "%q is granted to attempt %d", name, p.attempt.Nonce)
		}
	}
	var slots []int
	for _, h := range c.holders {
		if !overlap(p.request, h.request) {
			continue
		}
		if !compatible(p.request, h.request) || p.slot != 0 && p.slot == h.slot {
			return violated(M1, "attempt %d holds beside attempt %d, which has token %d", p.attempt.Nonce, h.attempt.Nonce,
				h.token)
		}
		if h.request.Permits != p.request.Permits {
			return violated(M1, "attempt %d has one of %d permits beside attempt %d, which has one of %d", p.attempt.Nonce,
				p.request.Permits,
				h.attempt.Nonce, h.request.Permits)
		}
		if h.slot <= p.request.Permits {
			slots = append(slots, h.slot)
		}
	}
	if p.request.Kind == engine.Permit && len(slots) >= p.request.Permits {
		return violated(M1, "attempt %d is granted while all %d slots are taken", p.attempt.Nonce, p.request.Permits)
	}
	for _, q := range ahead {
		if overlap(p.request, q.request) && !mayOvertake(p.request, q.request) {
			return violated(FIFO, "attempt %d is granted before attempt %d", p.attempt.Nonce, q.attempt.Nonce)
		}
	}
	return nil
}

// CheckWaiters reports a waiter that could be granted and was not. Call it after every
// command.
func (c *LogChecker) CheckWaiters() error {
	if c.last == fencing.MaxToken {
		return nil
	}
	for i, p := range c.waiters {
		if !c.ended[p.attempt.Session] && !p.moved && c.obstacle(p, c.waiters[:i]) == nil {
			return violated(WakeUp, "attempt %d of session %s", p.attempt.Nonce, p.attempt.Session.ID)
		}
	}
	return nil
}

func find(list []party, attempt Attempt) int {
	return slices.IndexFunc(list, func(p party) bool { return p.attempt == attempt })
}
