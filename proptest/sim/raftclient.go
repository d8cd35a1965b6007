package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// callTimeout bounds an acquire in efficiency mode that does not wait for its lock, and
	// waitTimeout one that does.
	callTimeout = 500 * time.Millisecond
	waitTimeout = 2 * time.Second
)

// raftClient provides the locks of the correctness mode: it sends operations to the leader,
// as internal/remote does.
type raftClient struct {
	*client
	links    *links
	sessions map[engine.SessionID]*raftSession
}

// raftSession is a session that was opened.
type raftSession struct {
	core        *clientcore.Session
	incarnation uint64
	grants      map[engine.Nonce]bool // that were not released
}

var _ locks = (*raftClient)(nil)

// answer is the answer of a node to a client.
type answer struct {
	state  state
	result machine.Result
	leader int   // a hint, -1 if unknown
	err    error // of an acquire that has waited
}

type state uint8

const (
	served    state = iota + 1 // result is set
	extended                   // the session has its full TTL again
	expired                    // the session has ended
	notLeader                  // it had no effect; another node may lead
	uncertain                  // it may have had an effect
)

func (m *raftClient) start() {
	m.sessions = map[engine.SessionID]*raftSession{}
	m.links = newLinks(m.client, m.disconnected)
}

// disconnected tells the sessions that their connection has dropped.
func (m *raftClient) disconnected() {
	for _, s := range m.sessions {
		s.core.Disconnected()
	}
}

func (m *raftClient) open(s *clientcore.Session, done func(error)) {
	id, ttl := s.ID(), s.Key().TTL
	m.links.request(memberTime, func(r *replica, reply func(answer)) {
		arrived := r.arrival()
		r.propose(&machine.OpenSession{Session: id, TTL: ttl}, func(a answer) {
			if a.state == served {
				a.state = r.extend(arrived, id, a.result.Incarnation, ttl)
			}
			reply(a)
		})
	}, func(a answer, err error) {
		switch {
		case err != nil:
		case a.state == expired:
			err = engine.ErrUnavailable // a late copy of another call; the next try opens it again
		default:
			m.sessions[id] = &raftSession{core: s, incarnation: a.result.Incarnation, grants: map[engine.Nonce]bool{}}
		}
		done(err)
	})
}

func (m *raftClient) acquire(s *clientcore.Session, request engine.Request, done func(engine.Grant, error)) {
	open := m.sessions[s.ID()]
	request.Mode = engine.Correctness
	command := &machine.Acquire{Session: s.ID(), Incarnation: open.incarnation, Request: request}
	limit := memberTime
	if request.Wait {
		limit = 0
	}
	m.links.request(limit, func(r *replica, reply func(answer)) { r.acquire(command, reply) }, func(a answer, err error) {
		if err == nil {
			err = a.err
		}
		if err == nil {
			err = a.result.Refusal(&request)
		}
		if err != nil {
			done(engine.Grant{}, err)
			return
		}
		open.grants[request.Nonce] = true
		done(engine.Grant{Token: a.result.Token, Slot: a.result.Slot, Mode: engine.Correctness}, nil)
	})
}

func (m *raftClient) renew(s *clientcore.Session, _ []engine.Held, done func([]engine.Nonce, error)) {
	open := m.sessions[s.ID()]
	if open == nil { // the client was paused before it sent this, and has closed the session
		m.w.timer(m.process, 0, func() { done(nil, engine.ErrExpired) })
		return
	}
	m.links.request(min(memberTime, m.policy.Renew), func(r *replica, reply func(answer)) {
		r.renew(s.ID(), open.incarnation, reply)
	}, func(a answer, err error) {
		if err == nil && a.state == expired {
			err = engine.ErrExpired
		}
		done(slices.Sorted(maps.Keys(open.grants)), err)
	})
}

func (m *raftClient) update(s *clientcore.Session, held engine.Held, done func(error)) {
	open := m.sessions[s.ID()]
	if open == nil {
		m.w.timer(m.process, 0, func() { done(engine.ErrExpired) })
		return
	}
	command := &machine.Update{Session: s.ID(), Incarnation: open.incarnation, TTL: held.TTL, Nonce: held.Nonce}
	m.links.request(memberTime, func(r *replica, reply func(answer)) {
		r.update(command, reply)
	}, func(a answer, err error) {
		switch {
		case err == nil && a.state == expired:
			err = engine.ErrExpired
		case err == nil && a.result.Code != machine.Done:
			err = engine.ErrNotHeld
		}
		done(err)
	})
}

func (m *raftClient) release(s *clientcore.Session, held engine.Held, done func(error)) {
	open := m.sessions[s.ID()]
	m.links.request(memberTime, func(r *replica, reply func(answer)) {
		r.propose(&machine.Release{Session: s.ID(), Incarnation: open.incarnation, Nonce: held.Nonce}, reply)
	}, func(_ answer, err error) {
		if err == nil {
			delete(open.grants, held.Nonce)
		}
		done(err)
	})
}

func (m *raftClient) close(s *clientcore.Session, _ []engine.Held) {
	open := m.sessions[s.ID()]
	m.links.request(memberTime, func(r *replica, reply func(answer)) {
		r.propose(&machine.CloseSession{Session: s.ID(), Incarnation: open.incarnation}, reply)
	}, func(answer, error) { delete(m.sessions, s.ID()) }) // otherwise it expires
}
