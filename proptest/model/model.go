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

// record is one request and its state.
type record struct {
	session Session
	request engine.Request
	state   state
	token   fencing.Token
	slot    int
}

// Session is one incarnation of a session. Requests of one incarnation have no effect
// on another with the same id.
type Session struct {
	ID          engine.SessionID
	Incarnation uint64
}

// SessionInfo is the state of an open session.
type SessionInfo struct {
	TTL         time.Duration
	Incarnation uint64
}

// ending is a session that has ended. Its requests end later.
type ending struct {
	session Session
	how     EventKind // of its holders
}

// Model is the state. Every method that returns an Outcome is one command, which must be valid.
type Model struct {
	Generation uint64                           // the number of leaders so far
	LastToken  fencing.Token                    // the largest that was granted or skipped
	Version    uint64                           // of policies and fleet
	Sessions   map[engine.SessionID]SessionInfo // the open ones
	Members    map[string]string                // the addresses of the members, by their names

	rules           map[string]*rule            // by prefix
	sweeps          map[string]fencing.Resource // by prefix, and the last lock that was visited
	ending          []ending                    // sessions that have ended, in the order of their ends
	lastIncarnation uint64                      // of any session
	requests        []*record                   // all that were ever made, in order
	ended           map[Attempt]bool            // of the open sessions
	delays          map[fencing.Resource]uint64 // the number of the running delay
	lastDelay       uint64

	redis                      Redis
	lives                      map[string]Life // by address
	assignedEver, restoredEver bool
	forgotten                  bool // restored without a fleet, and none was set since

	events []Event // that Events has not returned yet
}

// New returns an empty model.
func New() *Model {
	return &Model{rules: map[string]*rule{}, Sessions: map[engine.SessionID]SessionInfo{}, lives: map[string]Life{},
		sweeps: map[string]fencing.Resource{}, Members: map[string]string{}, ended: map[Attempt]bool{},
		delays: map[fencing.Resource]uint64{}}
}

// Lead begins a new generation.
func (m *Model) Lead() Outcome {
	m.Generation++
	return Outcome{Code: Done, Generation: m.Generation}
}

// OpenSession opens a session. An open session stays as it is. A session that ended is
// a new one: it keeps nothing of its former incarnation, and has a new number.
func (m *Model) OpenSession(id engine.SessionID, ttl time.Duration) Outcome {
	if _, open := m.Sessions[id]; !open {
		m.lastIncarnation++
		m.Sessions[id] = SessionInfo{TTL: ttl, Incarnation: m.lastIncarnation}
	}
	return Outcome{Code: Done, Incarnation: m.Sessions[id].Incarnation}
}

// Open reports whether this incarnation of a session is open.
func (m *Model) Open(s Session) bool {
	info, open := m.Sessions[s.ID]
	return open && info.Incarnation == s.Incarnation
}

// CloseSession ends a session at the request of its client.
func (m *Model) CloseSession(s Session) Outcome {
	return m.endSession(s, WasReleased)
}

// Expire ends a session whose deadline has passed, in the given generation.
func (m *Model) Expire(s Session, generation uint64) Outcome {
	if generation != m.Generation {
		return Outcome{Code: Outdated}
	}
	return m.endSession(s, WasExpired)
}

// EndSessions ends all sessions.
func (m *Model) EndSessions() Outcome {
	ids := slices.SortedFunc(maps.Keys(m.Sessions), func(a, b engine.SessionID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		m.endSession(Session{id, m.Sessions[id].Incarnation}, WasExpired)
	}
	m.EndRequests(1 << 30)
	return Outcome{Code: Done}
}

// EndRequests ends requests of sessions that have ended: those of the first session in line,
// its waiters before its holders, and then those of the next. The requests may be for at most
// limit locks in total, but one request may always end. Nothing is granted in between. A
// session of which some requests have ended, and others not, goes to the end of the line. What
// is left of limit is for the sweeps of locks that migrate.
func (m *Model) EndRequests(limit int) Outcome {
	var freed []fencing.Resource
	begun := false // the first session in line has lost a request by this command
	for visited := 0; len(m.ending) > 0 && visited < limit && len(freed) < limit; visited++ {
		first := m.ending[0]
		a := m.oldest(first.session)
		if a != nil && len(freed) > 0 && len(freed)+len(a.request.Resources) > limit {
			break
		}
		if a != nil {
			m.end(a, first.how)
			freed = append(freed, a.request.Resources...)
			begun = true
		}
		if m.oldest(first.session) == nil {
			m.ending, begun = m.ending[1:], false
		}
	}
	if begun {
		m.ending = slices.Concat(m.ending[1:], m.ending[:1])
	}
	m.grantWaiters(freed...)
	if m.sweepSome(limit-len(freed)) || len(m.ending) > 0 {
		return Outcome{Code: Ending}
	}
	return Outcome{Code: Done}
}

// oldest returns the next request that ends with a session: the first waiter, or else the
// holder with the smallest token.
func (m *Model) oldest(s Session) (next *record) {
	for _, a := range m.requests {
		switch {
		case a.session != s || a.state == over:
		case a.state == waiting:
			return a
		case next == nil || a.token < next.token:
			next = a
		}
	}
	return next
}

// Acquire requests a grant.
func (m *Model) Acquire(s Session, request engine.Request) Outcome {
	if !m.Open(s) {
		return Outcome{Code: NoSession}
	}
	attempt := Attempt{s, request.Nonce}
	if a := m.live(attempt); a != nil {
		if a.request.Kind != request.Kind || !slices.Equal(a.request.Resources, request.Resources) {
			return Outcome{Code: OtherRequest}
		}
		if a.state == waiting && !request.Wait {
			m.end(a, WasReleased)
			m.grantWaiters(slices.Clone(a.request.Resources)...)
			return Outcome{Code: Held}
		}
		return m.outcome(a)
	}
	if m.ended[attempt] {
		return Outcome{Code: Ended}
	}
	if m.redis.Restored { // the client may repeat it later
		return Outcome{Code: NotReady, Resource: request.Resources[0]}
	}
	for _, name := range request.Resources {
		if m.migrating(name) { // the client may repeat it later
			migration := m.ruleOf(name).migration
			return Outcome{Code: Migrating, Mode: migration.from, Next: migration.to, Resource: name}
		}
		if have := m.modeOf(name); have == engine.Efficiency || request.Mode == engine.Efficiency {
			m.ended[attempt] = true
			return Outcome{Code: WrongMode, Mode: have, Resource: name}
		}
	}
	for _, b := range m.requests {
		if b.state != over && request.Kind == engine.Permit && b.request.Kind == engine.Permit &&
			overlap(request, b.request) &&
			b.request.Permits != request.Permits {
			m.ended[attempt] = true
			return Outcome{Code: OtherPermits, Permits: b.request.Permits, Resource: request.Resources[0]}
		}
	}
	if m.LastToken == fencing.MaxToken {
		return Outcome{Code: Exhausted}
	}
	a := &record{session: s, request: request}
	m.requests = append(m.requests, a)
	switch {
	case m.mayHold(a):
		m.grant(a)
	case request.Wait:
		m.emit(WasQueued, a)
	default:
		a.state = over
		m.ended[attempt] = true
		return Outcome{Code: Held}
	}
	return m.outcome(a)
}

// Release ends an attempt in any state, also one that is not known yet.
func (m *Model) Release(s Session, nonce engine.Nonce) Outcome {
	if !m.Open(s) {
		return Outcome{Code: NoSession}
	}
	a := m.live(Attempt{s, nonce})
	if a == nil {
		m.ended[Attempt{s, nonce}] = true
		return Outcome{Code: Ended}
	}
	m.end(a, WasReleased)
	m.grantWaiters(slices.Clone(a.request.Resources)...)
	return Outcome{Code: Done}
}

// Break revokes the grant with this token.
func (m *Model) Break(name fencing.Resource, token fencing.Token) Outcome {
	a := m.holder(token)
	if a == nil || !slices.Contains(a.request.Resources, name) {
		return Outcome{Code: NotHeld}
	}
	m.end(a, WasBroken)
	m.grantWaiters(slices.Clone(a.request.Resources)...)
	return Outcome{Code: Done}
}

// EndDelay opens a lock if delay and generation are the current ones.
func (m *Model) EndDelay(name fencing.Resource, delay, generation uint64) Outcome {
	if delay == 0 || m.delays[name] != delay || generation != m.Generation {
		return Outcome{Code: Outdated}
	}
	delete(m.delays, name)
	m.events = append(m.events, Event{Kind: WasOpened, Resources: []fencing.Resource{name}, Mode: m.modeOf(name)})
	m.grantWaiters(name)
	return Outcome{Code: Done}
}

// RaiseFloor skips tokens, beyond all that Redis may have granted.
func (m *Model) RaiseFloor(by fencing.Token) Outcome {
	top := max(m.LastToken, m.redis.Ceiling) + by
	if top > fencing.MaxToken {
		return Outcome{Code: Exhausted}
	}
	m.LastToken = top
	return Outcome{Code: Done, Token: m.LastToken}
}

// holder returns the holder with a token, or nil.
func (m *Model) holder(token fencing.Token) *record {
	for _, a := range m.requests {
		if a.state == holding && a.token == token {
			return a
		}
	}
	return nil
}

// live returns the holder or waiter of this attempt, or nil.
func (m *Model) live(attempt Attempt) *record {
	for _, a := range m.requests {
		if a.state != over && (Attempt{a.session, a.request.Nonce}) == attempt {
			return a
		}
	}
	return nil
}

func (m *Model) outcome(a *record) Outcome {
	if a.state == waiting {
		return Outcome{Code: Queued}
	}
	return Outcome{Code: Granted, Token: a.token, Slot: a.slot, Mode: m.modeOf(a.request.Resources[0])}
}

// end ends a request. If the policy has a lock-delay, one begins after a holder that
// did not release.
func (m *Model) end(a *record, how EventKind) {
	if a.state == waiting {
		how = WasCancelled
	}
	m.emit(how, a)
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

func (m *Model) endSession(s Session, how EventKind) Outcome {
	if !m.Open(s) {
		return Outcome{Code: NoSession}
	}
	delete(m.Sessions, s.ID)
	if m.oldest(s) != nil {
		m.ending = append(m.ending, ending{s, how})
	}
	return Outcome{Code: Done}
}

func (m *Model) emit(what EventKind, a *record) {
	m.events = append(m.events, Event{Kind: what, Resources: a.request.Resources, Session: a.session.ID,
		Incarnation: a.session.Incarnation, Nonce: a.request.Nonce,
		Token: a.token, Slot: a.slot, Mode: m.modeOf(a.request.Resources[0]), Holder: a.request.Holder})
}

func (m *Model) delay(name fencing.Resource) Event {
	return Event{Kind: WasDelayed, Resources: []fencing.Resource{name}, Mode: m.modeOf(name),
		DelayID: m.delays[name], Delay: m.lockDelay(name)}
}

// Events returns the events of all commands since its last call.
func (m *Model) Events() []Event {
	events := m.events
	m.events = nil
	return events
}

// Delays returns the running lock-delays, sorted by name.
func (m *Model) Delays() []Event {
	var delays []Event
	for _, name := range m.inUse() {
		if m.delays[name] != 0 {
			delays = append(delays, m.delay(name))
		}
	}
	return delays
}

// Inspect returns the holders and waiters of a lock.
func (m *Model) Inspect(name fencing.Resource) engine.Status {
	status := engine.Status{Resource: name, Mode: m.modeOf(name), Delayed: m.delays[name] != 0}
	for _, a := range m.requests {
		if a.state == over || !slices.Contains(a.request.Resources, name) {
			continue
		}
		status.Permits = max(status.Permits, a.request.Permits)
		party := engine.Party{Holder: a.request.Holder, Session: a.session.ID, Nonce: a.request.Nonce, Kind: a.request.Kind,
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
