package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

type state int

const (
	waiting state = iota
	holding
	over
)

// ask is one request that was made, with what became of it.
type ask struct {
	session lease.SessionID
	request lease.Request
	state   state
	token   fencing.Token
	slot    int
}

// Model is the state. Every method is one command; a command that is not valid
// must not be given to it.
type Model struct {
	generation uint64
	lastToken  fencing.Token
	version    uint64 // of the policies
	policies   map[string]lease.Policy
	sessions   map[lease.SessionID]time.Duration // those that are open, with their TTL
	asks       []*ask                            // all that were ever made, in their order
	ended      map[Attempt]bool                  // of the sessions that are open
	delays     map[fencing.Resource]uint64       // the number of the delay that runs
	lastDelay  uint64

	events []Event // of the command that is being carried out
}

// New returns an empty model.
func New() *Model {
	return &Model{policies: map[string]lease.Policy{}, sessions: map[lease.SessionID]time.Duration{},
		ended: map[Attempt]bool{}, delays: map[fencing.Resource]uint64{}}
}

// Lead begins a new generation.
func (m *Model) Lead() (Outcome, []Event) {
	m.generation++
	return Outcome{Code: Done, Generation: m.generation}, nil
}

// OpenSession makes a session known. One that is open stays as it is. One that
// had ended is a new session: nothing of its former life is remembered.
func (m *Model) OpenSession(id lease.SessionID, ttl time.Duration) (Outcome, []Event) {
	if _, open := m.sessions[id]; !open {
		m.sessions[id] = ttl
	}
	return Outcome{Code: Done}, nil
}

// CloseSession ends a session at its client's wish.
func (m *Model) CloseSession(id lease.SessionID) (Outcome, []Event) {
	return m.endSession(id, WasReleased)
}

// Expire ends a session whose time has passed, in the generation given.
func (m *Model) Expire(id lease.SessionID, generation uint64) (Outcome, []Event) {
	if generation != m.generation {
		return Outcome{Code: Outdated}, nil
	}
	return m.endSession(id, WasExpired)
}

// Acquire asks for a grant.
func (m *Model) Acquire(id lease.SessionID, request lease.Request) (Outcome, []Event) {
	m.events = nil
	if _, open := m.sessions[id]; !open {
		return Outcome{Code: NoSession}, nil
	}
	attempt := Attempt{id, request.Nonce}
	if a := m.live(attempt); a != nil {
		return m.standing(a), nil
	}
	if m.ended[attempt] {
		return Outcome{Code: Ended}, nil
	}
	want := request.Mode
	if want == lease.AnyMode {
		want = modeOf(m.policies, request.Resources[0])
	}
	for _, name := range request.Resources {
		if have := modeOf(m.policies, name); have != want {
			m.ended[attempt] = true
			return Outcome{Code: WrongMode, Mode: have, Resource: name}, nil
		}
	}
	if m.lastToken == fencing.MaxToken {
		return Outcome{Code: Exhausted}, nil
	}
	a := &ask{session: id, request: request}
	m.asks = append(m.asks, a)
	switch {
	case m.mayHold(a):
		m.grant(a)
	case request.Wait:
		m.tell(WasQueued, a)
	default:
		a.state = over
		m.ended[attempt] = true
		return Outcome{Code: Held}, nil
	}
	return m.standing(a), m.events
}

// Release ends an attempt whatever its state, also one that is not known yet.
func (m *Model) Release(id lease.SessionID, nonce lease.Nonce) (Outcome, []Event) {
	m.events = nil
	if _, open := m.sessions[id]; !open {
		return Outcome{Code: NoSession}, nil
	}
	a := m.live(Attempt{id, nonce})
	if a == nil {
		m.ended[Attempt{id, nonce}] = true
		return Outcome{Code: Ended}, nil
	}
	m.end(a, WasReleased)
	m.settle(slices.Clone(a.request.Resources)...)
	return Outcome{Code: Done}, m.events
}

// Break takes the grant with this token away.
func (m *Model) Break(name fencing.Resource, token fencing.Token) (Outcome, []Event) {
	m.events = nil
	for _, a := range m.asks {
		if a.state == holding && a.token == token && slices.Contains(a.request.Resources, name) {
			m.end(a, WasBroken)
			m.settle(slices.Clone(a.request.Resources)...)
			return Outcome{Code: Done}, m.events
		}
	}
	return Outcome{Code: NotHeld}, nil
}

// EndDelay opens a lock, if this is its delay and its generation.
func (m *Model) EndDelay(name fencing.Resource, delay, generation uint64) (Outcome, []Event) {
	m.events = nil
	if delay == 0 || m.delays[name] != delay || generation != m.generation {
		return Outcome{Code: Outdated}, nil
	}
	delete(m.delays, name)
	m.events = append(m.events, Event{What: WasOpened, Resources: []fencing.Resource{name}, Mode: modeOf(m.policies, name)})
	m.settle(name)
	return Outcome{Code: Done}, m.events
}

// RaiseFloor skips tokens.
func (m *Model) RaiseFloor(by fencing.Token) (Outcome, []Event) {
	if m.lastToken+by > fencing.MaxToken {
		return Outcome{Code: Exhausted}, nil
	}
	m.lastToken += by
	return Outcome{Code: Done, Token: m.lastToken}, nil
}

// live is the holder or waiter of this attempt.
func (m *Model) live(attempt Attempt) *ask {
	for _, a := range m.asks {
		if a.state != over && (Attempt{a.session, a.request.Nonce}) == attempt {
			return a
		}
	}
	return nil
}

func (m *Model) standing(a *ask) Outcome {
	if a.state == waiting {
		return Outcome{Code: Queued}
	}
	return Outcome{Code: Granted, Token: a.token, Slot: a.slot, Mode: modeOf(m.policies, a.request.Resources[0])}
}

// end takes a request out. Where the policy wants a lock-delay, one begins
// after a holder that did not let go by itself.
func (m *Model) end(a *ask, how Happening) {
	if a.state == waiting {
		how = WasCancelled
	}
	m.tell(how, a)
	a.state = over
	m.ended[Attempt{a.session, a.request.Nonce}] = true
	if how != WasExpired && how != WasBroken {
		return
	}
	for _, name := range a.request.Resources {
		if m.lockDelay(name) > 0 {
			m.lastDelay++
			m.delays[name] = m.lastDelay
			m.events = append(m.events, m.delay(name))
		}
	}
}

// endSession ends all that a session has, what it waits for first.
func (m *Model) endSession(id lease.SessionID, how Happening) (Outcome, []Event) {
	m.events = nil
	if _, open := m.sessions[id]; !open {
		return Outcome{Code: NoSession}, nil
	}
	var freed []fencing.Resource
	for _, s := range []state{waiting, holding} {
		for _, a := range m.asks {
			if a.session == id && a.state == s {
				m.end(a, how)
				freed = append(freed, a.request.Resources...)
			}
		}
	}
	delete(m.sessions, id)
	for attempt := range m.ended {
		if attempt.Session == id {
			delete(m.ended, attempt)
		}
	}
	m.settle(freed...)
	return Outcome{Code: Done}, m.events
}

func (m *Model) tell(what Happening, a *ask) {
	m.events = append(m.events, Event{What: what, Resources: a.request.Resources, Session: a.session, Nonce: a.request.Nonce,
		Token: a.token, Slot: a.slot, Mode: modeOf(m.policies, a.request.Resources[0]), Holder: a.request.Holder})
}

func (m *Model) delay(name fencing.Resource) Event {
	return Event{What: WasDelayed, Resources: []fencing.Resource{name}, Mode: modeOf(m.policies, name),
		DelayID: m.delays[name], Delay: m.lockDelay(name)}
}

// Generation is the number of leaders so far.
func (m *Model) Generation() uint64 { return m.generation }

// LastToken is the largest token that was granted or skipped.
func (m *Model) LastToken() fencing.Token { return m.lastToken }

// Version is how often the policies have changed.
func (m *Model) Version() uint64 { return m.version }

// SessionTTLs are the sessions that are open.
func (m *Model) SessionTTLs() map[lease.SessionID]time.Duration { return m.sessions }

// Delays are the lock-delays that run, by name.
func (m *Model) Delays() []Event {
	var delays []Event
	for _, name := range m.inUse() {
		if m.delays[name] != 0 {
			delays = append(delays, m.delay(name))
		}
	}
	return delays
}

// Inspect tells who holds a lock and who waits for it.
func (m *Model) Inspect(name fencing.Resource) lease.Status {
	status := lease.Status{Resource: name, Mode: modeOf(m.policies, name), Delayed: m.delays[name] != 0}
	for _, a := range m.asks {
		if a.state == over || !slices.Contains(a.request.Resources, name) {
			continue
		}
		party := lease.Party{Holder: a.request.Holder, Session: a.session, Nonce: a.request.Nonce, Kind: a.request.Kind,
			Slot: a.slot, Token: a.token, Metadata: a.request.Metadata}
		if a.state == holding {
			status.Holders = append(status.Holders, party)
		} else {
			status.Waiters = append(status.Waiters, party)
		}
	}
	slices.SortFunc(status.Holders, func(a, b lease.Party) int { return cmp.Compare(a.Token, b.Token) })
	return status
}
