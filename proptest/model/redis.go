package model

import (
	"maps"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// step is the size of a range of tokens, and of every jump.
const step fencing.Token = 1 << 32

// Redis is the state of the Redis fleet in the log.
type Redis struct {
	Fleet          engine.Fleet
	Next           engine.Fleet // the fleet to change to, if NextVersion is not 0
	NextVersion    uint64
	Now, Force     bool
	Floor, Ceiling fencing.Token
	Fresh          bool // no range was assigned and the log was not restored
	Ready          bool
	Restored       bool
	Reconciled     uint64   // the version of the unfinished Reconcile
	Assigned       []string // sorted
}

// Range is the tokens above Floor, up to Ceiling.
type Range struct {
	Floor, Ceiling fencing.Token
	Version        uint64
	First          bool
}

// Redis returns the state of the Redis fleet.
func (m *Model) Redis() Redis {
	r := m.redis
	r.Fresh = !m.assignedEver && !m.restoredEver
	r.Assigned = slices.Sorted(maps.Keys(m.assigned))
	return r
}

// Ready reports whether clients may acquire efficiency locks: not before the log is
// reconciled with the nodes, nor while the fleet changes.
func (m *Model) Ready() bool { return m.redis.Ready && m.redis.NextVersion == 0 }

// SetFleet sets the fleet, or begins the change to another one. If no fleet was ready,
// the change is immediate.
func (m *Model) SetFleet(f engine.Fleet, version uint64, now, force bool) (Outcome, []Event) {
	r := &m.redis
	changing := r.NextVersion != 0
	switch {
	case version != 0 && version != m.version:
		return m.is(Outdated), nil
	case changing && sameFleet(f, r.Next):
		if (now && !r.Now) || (force && !r.Force) {
			r.Now, r.Force = r.Now || now, r.Force || force
			m.version++
		}
		return m.is(Done), nil
	case sameFleet(f, r.Fleet) && !changing:
		return m.is(Done), nil
	case sameFleet(f, r.Fleet):
		r.Next, r.NextVersion, r.Now, r.Force = engine.Fleet{}, 0, false, false
		return m.changed(), nil
	case len(r.Fleet.Addresses) == 0, !r.Ready && !r.Restored:
		r.Fleet, r.Next, r.NextVersion, r.Now, r.Force = f, engine.Fleet{}, 0, false, false
		r.Reconciled = 0
		m.assigned = map[string]bool{}
		return m.changed(), nil
	}
	o := m.changed()
	r.Next, r.NextVersion, r.Now, r.Force = f, m.version, now, force
	return o, nil
}

func sameFleet(a, b engine.Fleet) bool {
	x, y := slices.Sorted(slices.Values(a.Addresses)), slices.Sorted(slices.Values(b.Addresses))
	return a.Namespace == b.Namespace && a.MaxTTL == b.MaxTTL && slices.Equal(x, y)
}

// FinishFleet completes the change of fleet that began with this version.
func (m *Model) FinishFleet(version uint64) (Outcome, []Event) {
	r := &m.redis
	switch {
	case r.NextVersion == 0 && version <= m.version:
		return m.is(Done), nil
	case r.NextVersion != version:
		return m.is(Outdated), nil
	}
	r.Fleet, r.Next, r.NextVersion, r.Now, r.Force = r.Next, engine.Fleet{}, 0, false, false
	r.Floor = r.Ceiling
	m.assigned = map[string]bool{}
	r.Ready, r.Reconciled = false, 0 // the log must be reconciled with the new nodes first
	return m.changed(), nil
}

// AssignRange assigns a member of the fleet a range of unused tokens.
func (m *Model) AssignRange(member string) (Outcome, []Event) {
	r := &m.redis
	switch {
	case !slices.Contains(r.Fleet.Addresses, member):
		return m.is(Outdated), nil
	case !r.Ready && r.Reconciled == 0:
		return m.is(NotReady), nil
	case r.Ceiling+step > fencing.MaxToken:
		return m.is(Exhausted), nil
	}
	o := m.is(Done)
	o.Range = &Range{Floor: r.Ceiling, Ceiling: r.Ceiling + step, Version: m.version, First: !m.assigned[member]}
	r.Ceiling += step
	m.assigned[member], m.assignedEver = true, true
	return o, nil
}

// RaiseCeiling raises the ceiling.
func (m *Model) RaiseCeiling(to fencing.Token) (Outcome, []Event) {
	m.redis.Ceiling = max(m.redis.Ceiling, to)
	return m.is(Done), nil
}

// Reconcile moves the log past the reports of the nodes. A fresh log stays where it is
// if the nodes report no tokens.
func (m *Model) Reconcile(version uint64, ceiling fencing.Token) (Outcome, []Event) {
	r := &m.redis
	if r.Ready {
		return m.is(Outdated), nil
	}
	if ceiling > 0 || !m.Redis().Fresh {
		known := max(r.Ceiling, ceiling, m.lastToken)
		if known+4*step > fencing.MaxToken {
			return m.is(Exhausted), nil
		}
		r.Floor, r.Ceiling, m.lastToken = known+2*step, known+3*step, known+4*step
	}
	m.version = max(m.version, version)
	if r.Restored {
		m.version += 1 << 32
	}
	o := m.changed()
	r.Reconciled = m.version
	return o, nil
}

// FinishReconcile records that a quorum of nodes has reached a version.
func (m *Model) FinishReconcile(version uint64) (Outcome, []Event) {
	r := &m.redis
	switch {
	case r.Ready && version <= m.version:
		return m.is(Done), nil
	case r.Reconciled == 0, version < r.Reconciled, version > m.version:
		return m.is(Outdated), nil
	}
	r.Ready, r.Restored, r.Reconciled = true, false, 0
	for _, member := range r.Fleet.Addresses { // any of them may have voted
		m.assigned[member], m.assignedEver = true, true
	}
	return m.changed(), nil
}

// MarkRestored records that the log was restored from a backup. The replaced state had
// at most this version and ceiling, as far as is known.
func (m *Model) MarkRestored(version uint64, ceiling fencing.Token) (Outcome, []Event) {
	m.version = max(m.version, version) + 1<<32
	m.redis.Ceiling = max(m.redis.Ceiling, ceiling)
	m.redis.Ready, m.redis.Restored, m.redis.Reconciled = false, true, 0
	m.assigned = map[string]bool{}
	m.restoredEver = true
	return m.is(Done), nil
}

// SetMemberAPI records the address of a member, or removes it.
func (m *Model) SetMemberAPI(id, address string) (Outcome, []Event) {
	m.members[id] = address
	return m.is(Done), nil
}

// MemberAPI returns the address of a member, or "".
func (m *Model) MemberAPI(id string) string { return m.members[id] }
