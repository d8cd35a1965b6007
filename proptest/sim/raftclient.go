package sim

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// member is a client's side of the correctness mode: its session, which one
// keep-alive prolongs with everything in it.
type raftClient struct {
	*client
	id          engine.SessionID
	count       uint16 // sessions so far
	opened      bool
	incarnation uint64         // of the session that was opened
	renewed     engine.Instant // before the last answered keep-alive was sent
	guess       int            // who leads
}

var _ service = (*raftClient)(nil)

// answer is what a node says to a client.
type answer struct {
	state  state
	result machine.Result
	leader int // a hint, -1 if unknown
}

type state uint8

const (
	served    state = iota + 1 // result is of the machine
	extended                   // the session has its full time again
	expired                    // there is no such session
	notLeader                  // another one leads
	uncertain                  // it may or may not have happened
)

// start opens a new session.
func (m *raftClient) start() {
	m.count++
	m.id = engine.SessionID{byte(m.number), byte(m.count >> 8), byte(m.count)}
	m.opened, m.incarnation = false, 0
	id, sent := m.id, m.now()
	m.request(id, askTimeout, func() { sent = m.now() }, func(r *replica, reply func(answer)) {
		r.propose(&machine.OpenSession{Session: id, TTL: m.policy.TTL}, func(a answer) {
			if a.state == served {
				a.state = r.extend(id, a.result.Incarnation)
			}
			reply(a)
		})
	}, func(a answer) {
		if a.state == expired {
			m.renew()
			return
		}
		m.opened, m.incarnation, m.renewed = true, a.result.Incarnation, sent
		m.w.timer(m.process, m.policy.Renew, func() { m.keepAlive(id) })
	})
}

// request asks the node that is believed to lead, and the others after it, until
// one of them answers or the session is another.
func (m *raftClient) request(id engine.SessionID, timeout time.Duration, before func(), do func(*replica, func(answer)), got func(answer)) {
	if id != m.id {
		return
	}
	m.guess %= len(m.w.cluster.slots)
	slot, done, life := m.w.cluster.slots[m.guess], false, m.life
	again := func(pause time.Duration, hint int) {
		done = true
		m.guess++
		if hint >= 0 {
			m.guess = hint
		}
		m.w.timer(m.process, pause, func() { m.request(id, timeout, before, do, got) })
	}
	if before != nil {
		before()
	}
	m.w.send(m.process, slot.process, false, func() {
		do(slot.replica, func(a answer) {
			m.w.send(slot.process, m.process, false, func() {
				switch {
				case done || life != m.life:
				case a.state == notLeader || a.state == uncertain:
					again(30*time.Millisecond+m.w.random(60*time.Millisecond), a.leader)
				default:
					done = true
					got(a)
				}
			})
		})
	})
	m.w.timer(m.process, timeout, func() {
		if !done {
			again(0, -1)
		}
	})
}

// keepAlive prolongs the session, again and again.
func (m *raftClient) keepAlive(id engine.SessionID) {
	if id != m.id {
		return
	}
	m.step(AboutToRenew, func() {
		sent, incarnation := m.now(), m.incarnation
		m.request(id, askTimeout, func() { sent = m.now() }, func(r *replica, reply func(answer)) { r.renew(id, incarnation, reply) }, func(a answer) {
			switch {
			case id != m.id:
			case a.state == expired:
				m.renew()
			case sent.Since(m.renewed) > 0:
				m.renewed = sent
			}
			m.w.timer(m.process, m.policy.Renew, func() { m.keepAlive(id) })
		})
	})
}

// renew replaces a session that is gone, and with it all that was in it.
func (m *raftClient) renew() {
	if a := m.current; a != nil && !a.over && a.session == m.id {
		m.lost(a)
	}
	m.start()
}

func (m *raftClient) ask(a *attempt) {
	if !m.opened {
		m.w.timer(m.process, 50*time.Millisecond, func() {
			if !a.over {
				m.ask(a)
			}
		})
		return
	}
	a.session = m.id
	id := m.id
	command := &machine.Acquire{Session: id, Incarnation: m.incarnation, Request: engine.Request{Nonce: a.nonce, Resources: []resource{a.name},
		Kind: engine.Exclusive, Mode: engine.Correctness, Wait: a.wait}}
	m.request(id, 2*time.Second, nil, func(r *replica, reply func(answer)) { r.acquire(command, reply) }, func(got answer) {
		switch got.result.Code {
		case machine.Granted:
			m.granted(a, m.w.cluster.log.keyOf(got.result.Token, a.key), got.result.Token)
		case machine.NoSession:
			if id == m.id {
				m.renew()
			}
		case machine.Moving, machine.WrongMode: // a late copy must not be granted
			m.refused(a)
			m.release(a)
		default:
			m.refused(a)
		}
	})
}

// release tells the service until it has heard it, or the session is gone.
func (m *raftClient) release(a *attempt) {
	id, ok := a.session.(engine.SessionID)
	if !ok {
		return
	}
	incarnation := m.incarnation
	m.request(id, askTimeout, nil, func(r *replica, reply func(answer)) {
		r.propose(&machine.Release{Session: id, Incarnation: incarnation, Nonce: a.nonce}, reply)
	}, func(answer) {})
}

func (m *raftClient) sent(*attempt) engine.Instant { return m.renewed }
