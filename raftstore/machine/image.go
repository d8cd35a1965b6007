package machine

import (
	"maps"
	"math"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Image is the state of a machine at one moment. It does not change when the machine applies
// further commands. Copy must not run at the same time as Apply, and Encode may after the
// last Copy.
//
// It is copied in pieces, because a copy of a million sessions takes seconds. What changes
// before it was copied is copied first. Requests and delays are shared, because they do not change.
type Image struct {
	source  *Machine // nil when everything is copied
	number  uint32   // see place
	machine Machine  // without sessions and locks
	parts   stored

	sessionsLeft, requestsLeft int // places that are not visited yet
	sessions                   []*session
	requests                   []*request
	ending                     []*session // of the machine, in the order of their ends
	delays                     []*delay
}

// index is a set that can be visited in pieces while it changes. A removal moves the last
// value to the place of the removed one, so a visit goes downwards: it then misses no value
// that stays, and may visit some twice.
type index[T interface{ where() *place }] struct{ list []T }

// place is the place of a value in an index.
type place struct {
	at    int32
	image uint32 // the last image that has the value, or began before the value existed
}

func (p *place) where() *place { return p }

// add adds a value that exists since the last image.
func (x *index[T]) add(value T, image uint32) {
	*value.where() = place{int32(len(x.list)), image}
	x.list = append(x.list, value)
}

func (x *index[T]) remove(value T) {
	at, last := value.where().at, len(x.list)-1
	x.list[at] = x.list[last]
	x.list[at].where().at = at
	clear(x.list[last:])
	x.list = x.list[:last]
}

// visit calls do for at most limit values below the place left, from the last to the first,
// and returns the place of the last one. 0 means that all were visited.
func (x *index[T]) visit(left, limit int, do func(T)) int {
	left = min(left, len(x.list))
	for ; left > 0 && limit > 0; limit-- {
		left--
		do(x.list[left])
	}
	return left
}

// Image begins an image of the current state. The machine has one image at a time: Image
// completes the previous one.
func (m *Machine) Image() *Image {
	if m.image != nil {
		m.image.copyAll()
	}
	m.images++
	i := &Image{source: m, number: m.images, sessionsLeft: len(m.everySession.list),
		requestsLeft: len(m.everyRequest.list),
		machine: Machine{generation: m.generation, lastToken: m.lastToken, order: m.order, version: m.version,
			migrations: map[string]*migration{}, sweeps: maps.Clone(m.sweeps), memberAPI: maps.Clone(m.memberAPI),
			efficiency: m.efficiency}}
	i.machine.lives, i.machine.open = slices.Clone(m.lives), slices.Clone(m.open)
	for _, prefix := range sortedKeys(m.migrations) {
		copied := *m.migrations[prefix]
		i.machine.migrations[prefix] = &copied
	}
	i.parts = stored{policies: slices.Clone(m.policies.All())}
	i.delays = slices.Clone(m.everyDelay.list)
	i.ending = slices.Clone(m.ending.queue)
	m.image = i
	return i
}

// beforeChange is called before a session changes.
func (m *Machine) beforeChange(s *session) {
	if m.image != nil {
		m.image.copySession(s)
	}
}

// Copy copies at most limit further sessions and requests. It reports true when everything
// is copied.
func (i *Image) Copy(limit int) (done bool) {
	if i.source == nil {
		return true
	}
	i.sessionsLeft = i.source.everySession.visit(i.sessionsLeft, limit, i.copySession)
	i.requestsLeft = i.source.everyRequest.visit(i.requestsLeft, limit, i.copyRequest)
	if i.sessionsLeft+i.requestsLeft > 0 {
		return false
	}
	i.Drop()
	return true
}

// Drop ends the copying, for an image that is not wanted any more.
func (i *Image) Drop() {
	if i.source != nil {
		i.source.image, i.source = nil, nil
	}
}

func (i *Image) copyAll() {
	for !i.Copy(math.MaxInt) {
	}
}

// copySession copies a session, unless it is copied or was opened later.
func (i *Image) copySession(s *session) {
	if s.image == i.number {
		return
	}
	s.image = i.number
	copied := *s
	copied.ended = slices.Clone(copied.ended)
	i.sessions = append(i.sessions, &copied)
}

// copyRequest is copySession for a request.
func (i *Image) copyRequest(r *request) {
	if r.image != i.number {
		r.image = i.number
		i.requests = append(i.requests, r)
	}
}

// Encode encodes the state. Equal states have equal encodings. Call it once at a time.
func (i *Image) Encode() []byte {
	i.copyAll()
	sessions := make(map[uint64]*storedSession, len(i.sessions))
	i.parts.sessions = make([]storedSession, 0, len(i.sessions)-len(i.ending))
	i.parts.ending = make([]storedSession, len(i.ending))
	places := make(map[uint64]int, len(i.ending))
	for n, s := range i.ending {
		places[s.incarnation] = n
	}
	for _, s := range i.sessions {
		if n, ending := places[s.incarnation]; ending {
			i.parts.ending[n].session = s
			sessions[s.incarnation] = &i.parts.ending[n]
		} else {
			i.parts.sessions = append(i.parts.sessions, storedSession{session: s})
		}
	}
	slices.SortFunc(i.parts.sessions, func(a, b storedSession) int { return slices.Compare(a.id[:], b.id[:]) })
	for n := range i.parts.sessions {
		sessions[i.parts.sessions[n].incarnation] = &i.parts.sessions[n]
	}
	slices.SortFunc(i.requests, byOrder)
	for _, r := range i.requests {
		s := sessions[r.session.incarnation]
		s.requests = append(s.requests, r)
	}
	i.parts.delays = make(map[fencing.Resource]uint64, len(i.delays))
	for _, d := range i.delays {
		i.parts.delays[d.name] = d.number
	}
	c := &codec{}
	i.machine.code(c, &i.parts)
	return c.data
}

// Snapshot encodes the whole state. Equal machines have equal snapshots.
func (m *Machine) Snapshot() []byte { return m.Image().Encode() }

// OpenedSession is a session that is open.
type OpenedSession struct {
	ID engine.SessionID
	SessionInfo
}

// Sessions returns open sessions, for a new leader, which gives each its full TTL again. It
// reads at most limit of them at a time: the first call passes AllSessions, each further one
// what the previous one has returned, until that is 0. Sessions that are opened in between
// may be missing.
func (m *Machine) Sessions(from, limit int) (page []OpenedSession, left int) {
	left = m.everySession.visit(from, limit, func(s *session) {
		if s.how == 0 {
			page = append(page, OpenedSession{s.id, SessionInfo{TTL: s.ttl, Incarnation: s.incarnation, User: s.user}})
		}
	})
	return page, left
}

// AllSessions is where Sessions begins.
const AllSessions = math.MaxInt
