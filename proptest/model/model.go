package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

type state int

const (
	waiting state = iota
	holding
	over
)

// ask is one request that was made, with what became of it.
type ask struct {
	session engine.SessionID
	request engine.Request
	state   state
	token   fencing.Token
	slot    int
}

// Session is one life of a session: what is asked for in it has no effect on
// another with the same id.
type Session struct {
	ID   engine.SessionID
	Life uint64
}

// Settings is what a session was opened with.
type Settings struct {
	TTL  time.Duration
	Life uint64
}

// Model is the state. Every method is one command; a command that is not valid
// must not be given to it.
type Model struct {
	generation uint64
	lastToken  fencing.Token
	version    uint64                        // of policies and fleet
	rules      map[string]*rule              // by prefix
	sessions   map[engine.SessionID]Settings // those that are open
	lastLife   uint64                        // that a session was given
	asks       []*ask                        // all that were ever made, in their order
	ended      map[Attempt]bool              // of the sessions that are open
	delays     map[fencing.Resource]uint64   // the number of the delay that runs
	lastDelay  uint64

	redis                      Redis
	assigned                   map[string]bool // members with a range in this fleet
	assignedEver, restoredEver bool
	members                    map[string]string

	events []Event // of the command that is being carried out
}

// New returns an empty model.
func New() *Model {
	return &Model{rules: map[string]*rule{}, sessions: map[engine.SessionID]Settings{}, assigned: map[string]bool{},
		members: map[string]string{}, ended: map[Attempt]bool{}, delays: map[fencing.Resource]uint64{}}
}

// Lead begins a new generation.
func (m *Model) Lead() (Outcome, []Event) {
	m.generation++
	return Outcome{Code: Done, Generation: m.generation}, nil
}

// OpenSession makes a session known. One that is open stays as it is. One that
// had ended is a new session: nothing of its former life is remembered, and it
// has a number that no other had.
func (m *Model) OpenSession(id engine.SessionID, ttl time.Duration) (Outcome, []Event) {
	if _, open := m.sessions[id]; !open {
		m.lastLife++
		m.sessions[id] = Settings{TTL: ttl, Life: m.lastLife}
	}
	return Outcome{Code: Done, Life: m.sessions[id].Life}, nil
}

// Open reports whether a session is open, in this life.
func (m *Model) Open(s Session) bool {
	standing, open := m.sessions[s.ID]
	return open && standing.Life == s.Life
}

// CloseSession ends a session at its client's wish.
func (m *Model) CloseSession(s Session) (Outcome, []Event) {
	return m.endSession(s, WasReleased)
}

// Expire ends a session whose time has passed, in the generation given.
func (m *Model) Expire(s Session, generation uint64) (Outcome, []Event) {
	if generation != m.generation {
		return Outcome{Code: Outdated}, nil
	}
	return m.endSession(s, WasExpired)
}

// EndSessions ends all sessions.
func (m *Model) EndSessions() (Outcome, []Event) {
	m.events = nil
	m.endAll(slices.SortedFunc(maps.Keys(m.sessions), func(a, b engine.SessionID) int { return slices.Compare(a[:], b[:]) }), WasExpired)
	return Outcome{Code: Done}, m.events
}

// Acquire asks for a grant.
func (m *Model) Acquire(s Session, request engine.Request) (Outcome, []Event) {
	m.events = nil
	if !m.Open(s) {
		return Outcome{Code: NoSession}, nil
	}
	attempt := Attempt{s.ID, request.Nonce}
	if a := m.live(attempt); a != nil {
		return m.outcome(a), nil
	}
	if m.ended[attempt] {
		return Outcome{Code: Ended}, nil
	}
	if m.redis.Restored && !m.redis.Fleet.IsZero() { // it may be asked again later
		return Outcome{Code: NotReady, Resource: request.Resources[0]}, nil
	}
	for _, name := range request.Resources {
		if m.migrating(name) { // it may be asked again later
			way := m.ruleOf(name).migration
			return Outcome{Code: Moving, Mode: way.from, Next: way.to, Resource: name}, nil
		}
		if have := m.modeOf(name); have == engine.Efficiency || request.Mode == engine.Efficiency {
			m.ended[attempt] = true
			return Outcome{Code: WrongMode, Mode: have, Resource: name}, nil
		}
	}
	if m.lastToken == fencing.MaxToken {
		return Outcome{Code: Exhausted}, nil
	}
	a := &ask{session: s.ID, request: request}
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
	return m.outcome(a), m.events
}

// Release ends an attempt whatever its state, also one that is not known yet.
func (m *Model) Release(s Session, nonce engine.Nonce) (Outcome, []Event) {
	m.events = nil
	if !m.Open(s) {
		return Outcome{Code: NoSession}, nil
	}
	a := m.live(Attempt{s.ID, nonce})
	if a == nil {
		m.ended[Attempt{s.ID, nonce}] = true
		return Outcome{Code: Ended}, nil
	}
	m.end(a, WasReleased)
	m.grantWaiters(slices.Clone(a.request.Resources)...)
	return Outcome{Code: Done}, m.events
}

// Break takes the grant with this token away.
func (m *Model) Break(name fencing.Resource, token fencing.Token) (Outcome, []Event) {
	m.events = nil
	for _, a := range m.asks {
		if a.state == holding && a.token == token && slices.Contains(a.request.Resources, name) {
			m.end(a, WasBroken)
			m.grantWaiters(slices.Clone(a.request.Resources)...)
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
	m.events = append(m.events, Event{What: WasOpened, Resources: []fencing.Resource{name}, Mode: m.modeOf(name)})
	m.grantWaiters(name)
	return Outcome{Code: Done}, m.events
}

// RaiseFloor skips tokens, and all that Redis may have given out.
func (m *Model) RaiseFloor(by fencing.Token) (Outcome, []Event) {
	top := max(m.lastToken, m.redis.Ceiling) + by
	if top > fencing.MaxToken {
		return Outcome{Code: Exhausted}, nil
	}
	m.lastToken = top
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

func (m *Model) outcome(a *ask) Outcome {
	if a.state == waiting {
		return Outcome{Code: Queued}
	}
	return Outcome{Code: Granted, Token: a.token, Slot: a.slot, Mode: m.modeOf(a.request.Resources[0])}
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

func (m *Model) endSession(s Session, how Happening) (Outcome, []Event) {
	m.events = nil
	if !m.Open(s) {
		return Outcome{Code: NoSession}, nil
	}
	m.endAll([]engine.SessionID{s.ID}, how)
	return Outcome{Code: Done}, m.events
}

// endAll ends all that some sessions have, what they wait for first.
func (m *Model) endAll(ids []engine.SessionID, how Happening) {
	var freed []fencing.Resource
	for _, s := range []state{waiting, holding} {
		for _, id := range ids {
			for _, a := range m.asks {
				if a.session == id && a.state == s {
					m.end(a, how)
					freed = append(freed, a.request.Resources...)
				}
			}
		}
	}
	for _, id := range ids {
		delete(m.sessions, id)
	}
	for attempt := range m.ended {
		if slices.Contains(ids, attempt.Session) {
			delete(m.ended, attempt)
		}
	}
	m.grantWaiters(freed...)
}

func (m *Model) tell(what Happening, a *ask) {
	m.events = append(m.events, Event{What: what, Resources: a.request.Resources, Session: a.session, Nonce: a.request.Nonce,
		Token: a.token, Slot: a.slot, Mode: m.modeOf(a.request.Resources[0]), Holder: a.request.Holder})
}

func (m *Model) delay(name fencing.Resource) Event {
	return Event{What: WasDelayed, Resources: []fencing.Resource{name}, Mode: m.modeOf(name),
		DelayID: m.delays[name], Delay: m.lockDelay(name)}
}

// Generation is the number of leaders so far.
func (m *Model) Generation() uint64 { return m.generation }

// LastToken is the largest token that was granted or skipped.
func (m *Model) LastToken() fencing.Token { return m.lastToken }

// Version is that of policies and fleet.
func (m *Model) Version() uint64 { return m.version }

// Sessions are those that are open.
func (m *Model) Sessions() map[engine.SessionID]Settings { return m.sessions }

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
func (m *Model) Inspect(name fencing.Resource) engine.Status {
	status := engine.Status{Resource: name, Mode: m.modeOf(name), Delayed: m.delays[name] != 0}
	for _, a := range m.asks {
		if a.state == over || !slices.Contains(a.request.Resources, name) {
			continue
		}
		party := engine.Party{Holder: a.request.Holder, Session: a.session, Nonce: a.request.Nonce, Kind: a.request.Kind,
			Slot: a.slot, Token: a.token, Metadata: a.request.Metadata}
		if a.state == holding {
			status.Holders = append(status.Holders, party)
		} else {
			status.Waiters = append(status.Waiters, party)
		}
	}
	slices.SortFunc(status.Holders, func(a, b engine.Party) int { return cmp.Compare(a.Token, b.Token) })
	return status
}
