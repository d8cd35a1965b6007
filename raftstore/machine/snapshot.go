package machine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// SnapshotVersion is the first byte of every snapshot: the version of its format. See
// docs/adr/0030-frozen-formats.md.
const SnapshotVersion = 1

// maxCount exceeds what any counter of a machine can reach, and is so far below the
// largest number that counting from it cannot overflow.
const maxCount = 1 << 62

// stored has the parts of a machine that are in a snapshot in another form.
type stored struct {
	policies []engine.Policy
	sessions []storedSession // the open ones, in ascending order of their IDs
	ending   []storedSession // in the order of their ends
	delays   map[fencing.Resource]uint64
}

// storedSession is a session and its requests, which do not change.
type storedSession struct {
	*session
	requests []*request
}

// Restore decodes a snapshot. It refuses bytes that are not a snapshot of a valid state
// with ErrMalformed, and a snapshot of a newer build with an *engine.FormatError. A snapshot that may be
// older than later grants needs StartOver before the first grant.
func Restore(data []byte) (*Machine, error) {
	c := &codec{data: data, reading: true}
	m, parts := New(), stored{}
	m.code(c, &parts)
	if err := c.end(); err != nil {
		return nil, err
	}
	err := m.rebuild(&parts)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

func (m *Machine) code(c *codec, parts *stored) {
	c.version("state of the machine", SnapshotVersion)
	c.fields(&m.generation, &m.lastToken, &m.order, &m.version)
	list(c, &parts.policies, func(p *engine.Policy) { c.fields(p) })
	table(c, &m.migrations, c.migration)
	table(c, &m.sweeps, func(after *fencing.Resource) { c.fields(after) })
	c.fields(&m.fleet, &m.nextVersion)
	if m.nextVersion != 0 {
		c.fields(&m.nextFleet, &m.nextNow, &m.nextForce)
	}
	c.fields(&m.floor, &m.ceiling, &m.used, &m.ready, &m.restored, &m.reconciled, &m.fleetSet, &m.forgotten)
	list(c, &m.lives, func(l *Life) { c.fields(&l.Name, &l.Pending, &l.Floor, &l.Version) })
	list(c, &m.open, func(s *Set) { c.fields(&s.Version, &s.Lives) })
	c.fields(&m.memberAPI)
	list(c, &parts.sessions, c.session)
	table(c, &parts.delays, func(delay *uint64) { c.fields(delay) })
	list(c, &parts.ending, func(v *storedSession) {
		c.session(v)
		number(c, &v.how, math.MaxUint8)
	})
}

func (c *codec) migration(v **migration) {
	if c.reading {
		*v = &migration{}
	}
	mv := *v
	c.fields(&mv.version, &mv.now, &mv.delete, &mv.existed)
	if !mv.delete {
		c.fields(&mv.target)
	}
	if mv.existed {
		c.fields(&mv.before)
	}
}

func (c *codec) session(v *storedSession) {
	if c.reading {
		v.session = &session{requests: map[engine.Nonce]*request{}}
	}
	s := v.session
	c.fields(&s.id, &s.ttl, &s.incarnation)
	c.sharedText(&s.user)
	c.fields(&s.forgotten)
	list(c, (*[]span)(&s.ended), func(x *span) { c.fields(&x.lo, &x.hi) })
	list(c, &v.requests, c.liveRequest)
	if !c.reading {
		return
	}
	if !slices.IsSortedFunc(v.requests, byOrder) {
		c.fail("requests are not in their order")
	}
	for _, r := range v.requests {
		r.session, s.requests[r.nonce] = s, r
	}
	if len(s.requests) != len(v.requests) {
		c.fail("a session has two requests with one nonce")
	}
}

func (c *codec) liveRequest(v **request) {
	if c.reading {
		*v = &request{}
	}
	r := *v
	c.fields(&r.nonce, &r.order, &r.token, &r.slot, &r.resources, &r.kind, &r.permits, &r.metadata)
	c.sharedText(&r.holder)
	if !c.reading {
		return
	}
	q := engine.Request{Nonce: r.nonce, Resources: r.resources, Kind: r.kind, Permits: r.permits, Holder: r.holder,
		Metadata: r.metadata}
	if err := q.Validate(); err != nil {
		c.fail("request %d: %w", r.nonce, err)
	}
}

// rebuild adds the parts that are in a snapshot in another form.
func (m *Machine) rebuild(parts *stored) (err error) {
	if max(m.generation, m.order, m.version) > maxCount {
		return fmt.Errorf("a counter is above %d", uint64(maxCount))
	}
	if m.policies, err = engine.NewPolicies(parts.policies...); err != nil {
		return err
	}
	if !slices.Equal(m.policies.All(), parts.policies) {
		return fmt.Errorf("policies are not in their order")
	}
	var requests []*request
	for i, s := range parts.sessions {
		if i > 0 && slices.Compare(parts.sessions[i-1].id[:], s.id[:]) >= 0 {
			return fmt.Errorf("sessions are not in ascending order")
		}
		if err := engine.ValidateHolder(s.user); err != nil {
			return err
		}
		m.addSession(s.session)
		requests = append(requests, s.requests...)
	}
	for _, s := range parts.ending {
		if err := engine.ValidateHolder(s.user); err != nil {
			return err
		}
		s.usage = m.usageOf(s.user)
		m.everySession.add(s.session, m.images)
		m.ending.add(s.session)
		requests = append(requests, s.requests...)
	}
	m.rebuildLocks(requests)
	for _, name := range sortedKeys(parts.delays) {
		if err := name.Validate(); err != nil {
			return err
		}
		if parts.delays[name] == 0 {
			return fmt.Errorf("lock %q: delay 0", string(name))
		}
		m.setDelay(name, m.lock(name), parts.delays[name])
	}
	return nil
}

// rebuildLocks rebuilds the locks from the requests of all sessions.
func (m *Machine) rebuildLocks(requests []*request) {
	slices.SortFunc(requests, byOrder)
	for _, r := range requests {
		if r.token == fencing.None {
			m.attach(r)
			m.countWaiter(r.session, 1)
			m.enqueue(r)
		}
	}
	slices.SortFunc(requests, byToken)
	for _, r := range requests {
		if r.token != fencing.None {
			m.attach(r)
			m.countHolder(r.session, 1)
			for _, name := range r.resources {
				l := m.lock(name)
				l.holders = append(l.holders, r)
			}
		}
	}
}

func byOrder(a, b *request) int { return cmp.Compare(a.order, b.order) }
func byToken(a, b *request) int { return cmp.Compare(a.token, b.token) }
