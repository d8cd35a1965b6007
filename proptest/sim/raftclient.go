package sim

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// raftClient is a client of the correctness mode. One keep-alive extends its session and
// all leases in it.
type raftClient struct {
	*client
	id          engine.SessionID
	count       uint16 // sessions so far
	opened      bool
	incarnation uint64         // of the session that was opened
	renewed     engine.Instant // sent time of the last keep-alive that was answered
	guess       int            // the slot of the presumed leader
}

var _ service = (*raftClient)(nil)

// answer is the answer of a node to a client.
type answer struct {
	state  state
	result machine.Result
	leader int // a hint, -1 if unknown
}

type state uint8

const (
	served    state = iota + 1 // result is set
	extended                   // the session has its full TTL again
	expired                    // the session has ended
	notLeader                  // it had no effect; another node may lead
	uncertain                  // it may have had an effect
)

// start opens a new session.
func (m *raftClient) start() {
	m.count++
	m.id = engine.SessionID{byte(m.number), byte(m.count >> 8), byte(m.count)}
	m.opened, m.incarnation = false, 0
	id, sent := m.id, m.now()
	m.request(id, callTimeout, func() { sent = m.now() }, func(r *replica, reply func(answer)) {
		arrived := r.arrival()
		r.propose(&machine.OpenSession{Session: id, TTL: m.policy.TTL}, func(a answer) {
			if a.state == served {
				a.state = r.extend(arrived, id, a.result.Incarnation)
			}
			reply(a)
		})
	}, func(a answer) {
		if a.state == expired {
			m.replaceSession()
			return
		}
		m.opened, m.incarnation, m.renewed = true, a.result.Incarnation, sent
		m.w.timer(m.process, m.policy.Renew, func() { m.keepAlive(id) })
	})
}

// request calls the presumed leader, then the other nodes, until one answers or the
// session has ended.
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

// keepAlive renews the session periodically.
func (m *raftClient) keepAlive(id engine.SessionID) {
	if id != m.id {
		return
	}
	m.step(AboutToRenew, func() {
		sent, incarnation := m.now(), m.incarnation
		m.request(id, callTimeout, func() { sent = m.now() }, func(r *replica, reply func(answer)) { r.renew(id, incarnation, reply) }, func(a answer) {
			switch {
			case id != m.id:
			case a.state == expired:
				m.replaceSession()
			case sent.Since(m.renewed) > 0:
				m.renewed = sent
			}
			m.w.timer(m.process, m.policy.Renew, func() { m.keepAlive(id) })
		})
	})
}

// replaceSession opens a new session after the old one ended with all its leases.
func (m *raftClient) replaceSession() {
	if a := m.current; a != nil && !a.over && a.state == m.id {
		m.lost(a)
	}
	m.start()
}

func (m *raftClient) acquire(a *attempt) {
	if !m.opened {
		m.w.timer(m.process, 50*time.Millisecond, func() {
			if !a.over {
				m.acquire(a)
			}
		})
		return
	}
	a.state = m.id
	id := m.id
	command := &machine.Acquire{Session: id, Incarnation: m.incarnation, Request: engine.Request{Nonce: a.nonce, Resources: []resource{a.name},
		Kind: engine.Exclusive, Mode: engine.Correctness, Wait: a.wait}}
	m.request(id, 2*time.Second, nil, func(r *replica, reply func(answer)) { r.acquire(command, reply) }, func(got answer) {
		switch got.result.Code {
		case machine.Granted:
			m.granted(a, m.w.cluster.log.keyOf(got.result.Token, a.key), got.result.Token)
		case machine.NoSession:
			if id == m.id {
				m.replaceSession()
			}
		case machine.Migrating, machine.NotReady, machine.WrongMode: // prevent a late copy from being granted
			m.denied(a)
			m.release(a)
		default:
			m.denied(a)
		}
	})
}

// release repeats the release until the service confirms it or the session has ended.
func (m *raftClient) release(a *attempt) {
	id, ok := a.state.(engine.SessionID)
	if !ok {
		return
	}
	incarnation := m.incarnation
	m.request(id, callTimeout, nil, func(r *replica, reply func(answer)) {
		r.propose(&machine.Release{Session: id, Incarnation: incarnation, Nonce: a.nonce}, reply)
	}, func(answer) {})
}

func (m *raftClient) sent(*attempt) engine.Instant { return m.renewed }
