package machine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Machine is the replicated state. It is not safe for concurrent use.
//
// Invariants, checked by check:
//  1. every holder has a unique token, at most lastToken;
//  2. holders of one lock are of one kind, which is not exclusive if there are
//     several; permits have different slots, and all requests for permits of a lock
//     name the same number of permits;
//  3. waiters are in ascending order, and none of them could be granted, unless a sweep
//     has not visited one of its locks yet;
//  4. a lock has holders, waiters or a delay;
//  5. an attempt that has ended is not live;
//  6. every policy names a mode; all locks in use are in correctness mode, and a lock
//     in a migration has no waiters, and is not in use if the migration does not wait, unless a sweep
//     has not visited it yet;
//  7. a policy has a next mode if and only if there is a migration for its prefix;
//  8. every token that the log has assigned to the Redis nodes is at most ceiling, and
//     floor is at most ceiling;
//  9. usage has the number of sessions, holders and waiters of each user;
//  10. queues has the lengths of the queues of all locks;
//  11. everyDelay has the delays of the locks;
//  12. sessions has the open sessions, and ending those that have ended and still have
//     requests; an index has both.
type Machine struct {
	generation uint64
	lastToken  fencing.Token
	order      uint64 // the last number given to a request, a delay or an incarnation
	policies   engine.Policies
	version    uint64                      // of the topology: policies, migrations, fleet and readiness
	migrations map[string]*migration       // by the prefix of their policy
	sweeps     map[string]fencing.Resource // by prefix, and the last lock that was visited; see startSweep
	memberAPI  map[string]string           // the API addresses of the members, by ID
	efficiency
	sessions map[engine.SessionID]*session // the open ones
	ending   endings
	locks    map[fencing.Resource]*lock
	names    names // of locks

	holders, waiters int               // the number of requests of each kind
	queues           queueLengths      // of all locks
	usage            map[string]*usage // by user, for users with sessions

	everySession index[*session] // open and ending
	everyRequest index[*request]
	everyDelay   index[*delay]
	image        *Image // that is being copied, or nil
	images       uint32 // so far

	events []Event // of the current command
}

// New returns an empty machine.
func New() *Machine {
	return &Machine{sessions: map[engine.SessionID]*session{}, locks: map[fencing.Resource]*lock{},
		migrations: map[string]*migration{}, sweeps: map[string]fencing.Resource{}, memberAPI: map[string]string{},
		usage:  map[string]*usage{},
		ending: endings{numbers: map[uint64]*session{}}}
}

// Apply applies a command. The events are valid until the next Apply.
func (m *Machine) Apply(c Command) (Result, []Event) {
	clear(m.events)
	m.events = m.events[:0]
	return c.apply(m), m.events
}

// Generation returns the number of leaderships so far.
func (m *Machine) Generation() uint64 { return m.generation }

// LastToken returns the largest token that was granted or skipped.
func (m *Machine) LastToken() fencing.Token { return m.lastToken }

// Order returns the largest number that was given to a request, a delay or an
// incarnation.
func (m *Machine) Order() uint64 { return m.order }

// Policies returns the policies of the locks, and the version of the topology.
func (m *Machine) Policies() (engine.Policies, uint64) { return m.policies, m.version }

// Version returns the version of the topology.
func (m *Machine) Version() uint64 { return m.version }

// SessionInfo has the TTL, the incarnation and the owner of a session. It is zero if there is no
// such session.
type SessionInfo struct {
	TTL         time.Duration
	Incarnation uint64
	User        string
}

// SessionInfo returns the SessionInfo of one session, zero if there is none.
func (m *Machine) SessionInfo(id engine.SessionID) SessionInfo {
	if s := m.sessions[id]; s != nil {
		return SessionInfo{TTL: s.ttl, Incarnation: s.incarnation, User: s.user}
	}
	return SessionInfo{}
}

// Delays returns running lock delays, as events, for a new leader. Like Sessions it reads at most
// limit of them at a time, from AllDelays on. Delays that begin in between may be missing, and one
// may be returned twice if another ends in between.
func (m *Machine) Delays(from, limit int) (page []Event, left int) {
	left = m.everyDelay.visit(from, limit, func(d *delay) {
		page = append(page, m.delayEvent(d.name, m.locks[d.name]))
	})
	return page, left
}

// AllDelays is where Delays begins.
const AllDelays = math.MaxInt

// setDelay begins a lock delay with this number, or ends it with 0.
func (m *Machine) setDelay(name fencing.Resource, l *lock, number uint64) {
	if l.delay != nil {
		m.everyDelay.remove(l.delay)
		l.delay = nil
	}
	if number != 0 {
		l.delay = &delay{name: name, number: number}
		m.everyDelay.add(l.delay, 0)
	}
}

// Inspect returns the holders and waiters of a lock.
func (m *Machine) Inspect(resource fencing.Resource) engine.Status {
	status, _, _, _ := m.InspectFirst(resource, math.MaxInt)
	return status
}

func (r *request) party() engine.Party {
	return engine.Party{Holder: r.holder, User: r.session.user, Session: r.session.id, Nonce: r.nonce, Kind: r.kind,
		Slot:  r.slot,
		Token: r.token, Metadata: maps.Clone(r.metadata)}
}

// modeOf returns the mode of a lock. During a migration it is the old mode.
func (m *Machine) modeOf(resource fencing.Resource) engine.Mode {
	return modeOf(m.policies.For(resource))
}

// modeOf returns the mode of a policy. A lock without a policy is in correctness mode.
func modeOf(p engine.Policy) engine.Mode {
	if p.Mode != engine.AnyMode {
		return p.Mode
	}
	return engine.Correctness
}

func (m *Machine) lock(resource fencing.Resource) *lock {
	l := m.locks[resource]
	if l == nil {
		l = &lock{}
		l.holders = l.first[:0]
		m.locks[resource] = l
		m.names.add(resource, m.locks)
	}
	return l
}

func (m *Machine) nextOrder() uint64 {
	m.order++
	return m.order
}

func (m *Machine) emit(t EventType, r *request) {
	m.events = append(m.events, Event{Type: t, Resources: r.resources, Session: r.session.id, Nonce: r.nonce,
		Token: r.token, Slot: r.slot, Mode: m.modeOf(r.resources[0]), Holder: r.holder, User: r.session.user,
		Incarnation: r.session.incarnation})
}

func (m *Machine) sessionIDs() []engine.SessionID {
	return slices.SortedFunc(maps.Keys(m.sessions), func(a, b engine.SessionID) int { return slices.Compare(a[:], b[:]) })
}

// requestsOf returns the requests of a session in their order.
func requestsOf(s *session) []*request {
	return slices.SortedFunc(maps.Values(s.requests), byOrder)
}

// sortedKeys returns the keys of a map in ascending order. It and the two functions
// above are the only ways to iterate over a map in this package.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
