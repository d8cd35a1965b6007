package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// snapshotVersion is the first byte of every snapshot.
const snapshotVersion = 3

// maxCount exceeds what any counter of a machine can reach, and is so far below the
// largest number that counting from it cannot overflow.
const maxCount = 1 << 62

// Snapshot encodes the whole state. Equal machines have equal snapshots.
func (m *Machine) Snapshot() []byte {
	w := &writer{}
	w.byte(snapshotVersion)
	w.uint(m.generation)
	w.uint(uint64(m.lastToken))
	w.uint(m.order)
	w.uint(m.version)
	policies := m.policies.All()
	w.int(len(policies))
	for _, p := range policies {
		w.policy(p)
	}
	w.topology(m)
	w.int(len(m.sessions))
	for _, id := range m.sessionIDs() {
		w.session(m.sessions[id])
	}
	delayed := slices.DeleteFunc(sortedKeys(m.locks), func(name fencing.Resource) bool { return m.locks[name].delay == 0 })
	w.int(len(delayed))
	for _, name := range delayed {
		w.text(string(name))
		w.uint(m.locks[name].delay)
	}
	return w.data
}

func (w *writer) session(s *session) {
	w.raw(s.id[:])
	w.uint(uint64(s.ttlNanos))
	w.uint(s.incarnation)
	w.int(len(s.ended))
	for _, x := range s.ended {
		w.uint(x.lo)
		w.uint(x.hi)
	}
	w.int(len(s.requests))
	for _, r := range requestsOf(s) {
		w.request(&engine.Request{Nonce: r.nonce, Resources: r.resources, Kind: r.kind, Permits: r.permits, Holder: r.holder, Metadata: r.metadata})
		w.uint(r.order)
		w.uint(uint64(r.token))
		w.int(r.slot)
	}
}

// Restore decodes a snapshot. It refuses bytes that are not a snapshot of a valid state
// with ErrMalformed. A snapshot that may be older than later grants needs RaiseFloor,
// EndSessions and MarkRestored before the first grant.
func Restore(data []byte) (*Machine, error) {
	r := &reader{data: data}
	if version := r.byte(); r.err == nil && version != snapshotVersion {
		return nil, fmt.Errorf("%w: snapshot version %d, this program reads version %d", ErrMalformed, version, snapshotVersion)
	}
	m := New()
	m.generation, m.lastToken, m.order, m.version = r.max(maxCount), r.token(), r.max(maxCount), r.max(maxCount)
	var policies []engine.Policy
	for range r.count() {
		policies = append(policies, r.policy())
	}
	var err error
	if m.policies, err = engine.NewPolicies(policies...); err != nil && r.err == nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !slices.Equal(m.policies.All(), policies) {
		r.fail("policies are not in their order")
	}
	m.restoreTopology(r)
	m.restoreSessions(r)
	var last fencing.Resource
	for i := range r.count() {
		name := r.resource()
		if i > 0 && name <= last {
			r.fail("delays are not in ascending order")
		}
		last = name
		delay := r.uint()
		if delay == 0 {
			r.fail("delay 0")
		}
		m.lock(name).delay = delay
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

// restoreSessions decodes the sessions and rebuilds the locks from their requests.
func (m *Machine) restoreSessions(r *reader) {
	var requests []*request
	var last engine.SessionID
	for i := range r.count() {
		s := &session{id: r.session(), ttlNanos: int64(r.dur()), incarnation: r.max(maxCount), requests: map[engine.Nonce]*request{}}
		if i > 0 && slices.Compare(s.id[:], last[:]) <= 0 {
			r.fail("sessions are not in ascending order")
		}
		last = s.id
		m.sessions[s.id] = s
		for range r.count() {
			s.ended = append(s.ended, span{r.uint(), r.uint()})
		}
		first := len(requests)
		for range r.count() {
			q := r.restoredRequest(s)
			requests = append(requests, q)
			s.requests[q.nonce] = q
		}
		if !slices.IsSortedFunc(requests[first:], byOrder) {
			r.fail("requests are not in their order")
		}
	}
	slices.SortFunc(requests, byOrder)
	for _, q := range requests {
		if q.token == fencing.None {
			m.waiters++
			for _, name := range q.resources {
				l := m.lock(name)
				l.queue = append(l.queue, q)
			}
		}
	}
	slices.SortFunc(requests, func(a, b *request) int { return cmp.Compare(a.token, b.token) })
	for _, q := range requests {
		if q.token != fencing.None {
			m.holders++
			for _, name := range q.resources {
				l := m.lock(name)
				l.holders = append(l.holders, q)
			}
		}
	}
}

func byOrder(a, b *request) int { return cmp.Compare(a.order, b.order) }

func (r *reader) restoredRequest(s *session) *request {
	q := r.request()
	if err := q.Validate(); err != nil || q.Mode != engine.AnyMode || q.Wait || s.requests[q.Nonce] != nil {
		r.fail("request %d of session %s is not valid", q.Nonce, s.id)
	}
	return &request{session: s, nonce: q.Nonce, resources: q.Resources, kind: q.Kind, permits: q.Permits, holder: q.Holder, metadata: q.Metadata,
		order: r.uint(), token: r.token(), slot: int(r.max(engine.MaxPermits))}
}

func (r *reader) resource() fencing.Resource {
	name := fencing.Resource(r.text())
	if err := name.Validate(); err != nil {
		r.fail("%v", err)
	}
	return name
}
