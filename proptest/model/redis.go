package model

import (
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// step is how many tokens Redis may use before the ceiling is raised, and the size of every jump.
const step fencing.Token = 1 << 32

// Redis is the state of the Redis fleet in the log.
type Redis struct {
	Fleet          engine.Fleet
	Next           engine.Fleet // the fleet to change to, if NextVersion is not 0
	NextVersion    uint64
	Now, Force     bool
	Floor, Ceiling fencing.Token
	Fresh          bool // no life was named and the log was not restored
	Ready          bool
	Restored       bool
	Reconciled     uint64 // the version of the last Reconcile with this fleet
	FleetSet       bool
	Lives          []Life // by the order of the fleet's addresses
	Open           []Set
}

// Life is the life of a Redis node that the topology names. It is pending until it votes, and has a floor
// once no older set is open.
type Life struct {
	Name    string
	Pending bool
	Floor   fencing.Token
	Version uint64
}

// Set is a set of lives that callers of older versions may still use.
type Set struct {
	Version uint64
	Lives   []string
}

// Redis returns the state of the Redis fleet.
func (m *Model) Redis() Redis {
	r := m.redis
	r.Fresh = !m.assignedEver && !m.restoredEver
	for _, address := range r.Fleet.Addresses {
		r.Lives = append(r.Lives, m.lives[address])
	}
	return r
}

// lifeNames returns the named lives, by the order of the fleet's addresses.
func (m *Model) lifeNames() (names []string) {
	for _, l := range m.Redis().Lives {
		names = append(names, l.Name)
	}
	return names
}

// forgetLives stops efficiency mode until the next Reconcile.
func (m *Model) forgetLives() {
	m.lives = map[string]Life{}
	m.redis.Open, m.redis.Ready, m.redis.Reconciled = nil, false, 0
}

// skip moves the tokens of Redis past a fleet that nobody remembers.
func (m *Model) skip() {
	m.redis.Ceiling = min(max(m.redis.Ceiling, m.LastToken)+64*step, fencing.MaxToken)
}

// skipAfter skips when another fleet follows one that was forgotten, or none follows it.
func (m *Model) skipAfter(f engine.Fleet) {
	switch none := len(f.Addresses) == 0; {
	case none && m.redis.Restored:
		m.skip()
		m.redis.Restored, m.LastToken = false, m.redis.Ceiling
	case !none && m.forgotten:
		m.skip()
		m.forgotten = false
	}
}

// Ready reports whether clients may acquire efficiency locks: not before the log is
// reconciled with the nodes, nor while the fleet changes.
func (m *Model) Ready() bool { return m.redis.Ready && m.redis.NextVersion == 0 }

// SetFleet sets the fleet, or begins the change to another one. If no fleet was ready,
// the change is immediate.
func (m *Model) SetFleet(f engine.Fleet, version uint64, now, force bool) Outcome {
	r := &m.redis
	changing := r.NextVersion != 0
	if version != 0 && version != m.Version {
		return m.is(Outdated)
	}
	r.FleetSet = true
	switch {
	case force && r.Restored && !sameFleet(f, r.Fleet):
		m.replaceFleet(f)
		return m.changed()
	case changing && sameFleet(f, r.Next):
		if (now && !r.Now) || (force && !r.Force) {
			r.Now, r.Force = r.Now || now, r.Force || force
			m.Version++
		}
		return m.is(Done)
	case sameFleet(f, r.Fleet) && !changing:
		return m.is(Done)
	case sameFleet(f, r.Fleet):
		r.Next, r.NextVersion, r.Now, r.Force = engine.Fleet{}, 0, false, false
		return m.changed()
	case len(r.Fleet.Addresses) == 0, !r.Ready && !r.Restored:
		m.replaceFleet(f)
		return m.changed()
	}
	o := m.changed()
	r.Next, r.NextVersion, r.Now, r.Force = f, m.Version, now, force
	return o
}

// replaceFleet makes a fleet the current one. The log must be reconciled with its nodes first.
func (m *Model) replaceFleet(f engine.Fleet) {
	r := &m.redis
	r.Fleet, r.Next, r.NextVersion, r.Now, r.Force = f, engine.Fleet{}, 0, false, false
	m.forgetLives()
	m.skipAfter(f)
}

func sameFleet(a, b engine.Fleet) bool {
	x, y := slices.Sorted(slices.Values(a.Addresses)), slices.Sorted(slices.Values(b.Addresses))
	return a.Namespace == b.Namespace && a.MaxTTL == b.MaxTTL && slices.Equal(x, y)
}

// FinishFleet completes the change of fleet that began with this version.
func (m *Model) FinishFleet(version uint64) Outcome {
	r := &m.redis
	switch {
	case r.NextVersion == 0 && version <= m.Version:
		return m.is(Done)
	case r.NextVersion != version:
		return m.is(Outdated)
	}
	m.replaceFleet(r.Next)
	r.Floor = r.Ceiling
	return m.changed()
}

// NameLife names a life of a member of the fleet, at the given version unless that is 0.
func (m *Model) NameLife(member, life string, version uint64) Outcome {
	r := &m.redis
	known := m.lives[member]
	switch {
	case !slices.Contains(r.Fleet.Addresses, member):
		return m.is(Outdated)
	case known.Name == life && known.Pending:
		return m.is(Done)
	case version != 0 && version != m.Version, slices.Contains(m.lifeNames(), life):
		return m.is(Outdated)
	case r.Reconciled == 0:
		return m.is(NotReady)
	case r.Ceiling+step > fencing.MaxToken:
		return m.is(Exhausted)
	case len(r.Open) >= 64:
		return m.is(TooManyOpen)
	}
	if r.Ready {
		r.Open = append(slices.Clone(r.Open), Set{m.Version, m.lifeNames()})
	}
	o := m.changed()
	l := Life{Name: life, Pending: true, Version: m.Version}
	if !m.waits(l) {
		l.Floor = r.Floor
	}
	r.Ceiling = max(r.Ceiling, r.Floor+step)
	m.lives[member], m.assignedEver = l, true
	return o
}

// FinishRecovery records that a life votes.
func (m *Model) FinishRecovery(member, life string) Outcome {
	l := m.lives[member]
	if !slices.Contains(m.redis.Fleet.Addresses, member) || l.Name != life {
		return m.is(Outdated)
	}
	m.lives[member] = Life{Name: life, Version: l.Version}
	return m.is(Done)
}

// waits reports whether a set is open that is older than a life.
func (m *Model) waits(l Life) bool {
	return slices.ContainsFunc(m.redis.Open, func(s Set) bool { return l.Pending && s.Version < l.Version })
}

// CloseSets removes the sets of versions below this one, which have granted no token above granted unless that is
// 0. The lives that waited for that start from there, or else from the ceiling.
func (m *Model) CloseSets(version uint64, granted fencing.Token) Outcome {
	waited := map[string]bool{}
	for member, l := range m.lives {
		waited[member] = m.waits(l)
	}
	var open []Set
	for _, s := range m.redis.Open {
		if s.Version >= version {
			open = append(open, s)
		}
	}
	m.redis.Open = open
	top, some := m.redis.Ceiling, false
	for member, l := range m.lives {
		if !waited[member] || m.waits(l) {
			continue
		}
		some = true
		if l.Floor = top; granted != 0 {
			l.Floor = max(m.redis.Floor, min(granted, top))
		}
		m.lives[member] = l
	}
	if some && granted == 0 {
		m.redis.Ceiling = min(top+step, fencing.MaxToken)
	}
	return m.is(Done)
}

// RaiseCeiling raises the ceiling.
func (m *Model) RaiseCeiling(to fencing.Token) Outcome {
	m.redis.Ceiling = max(m.redis.Ceiling, to)
	return m.is(Done)
}

// Reconcile moves the log past the reports of the nodes. A fresh log stays where it is
// if the nodes report no tokens. at is the version at which they reported, or 0; lives are
// those that vote, and past those that callers may use under forgotten versions.
func (m *Model) Reconcile(at, version uint64, ceiling fencing.Token, lives, past []string) Outcome {
	r := &m.redis
	fits := func(list []string) bool { return len(list) == 0 || len(list) == len(r.Fleet.Addresses) }
	if r.Ready || at != 0 && at != m.Version || !fits(lives) || !fits(past) {
		return m.is(Outdated)
	}
	if ceiling > 0 || !m.Redis().Fresh {
		known := max(r.Ceiling, ceiling, m.LastToken)
		if known+4*step > fencing.MaxToken {
			return m.is(Exhausted)
		}
		if m.Redis().Fresh || r.Restored || ceiling > r.Ceiling {
			r.Floor, r.Ceiling, m.LastToken = known+2*step, known+3*step, known+4*step
		} else {
			m.LastToken = max(m.LastToken, r.Ceiling)
			r.Floor, r.Ceiling = r.Ceiling, r.Ceiling+step
		}
	}
	m.Version = max(m.Version, version)
	if r.Restored {
		m.Version += 1 << 20
	}
	o := m.changed()
	m.forgetLives()
	r.Reconciled = m.Version
	for i, life := range lives {
		m.lives[r.Fleet.Addresses[i]] = Life{Name: life}
	}
	if r.Restored && len(past) > 0 {
		r.Open = []Set{{m.Version - 1, past}}
	}
	return o
}

// FinishReconcile records that a quorum of nodes has reached a version.
func (m *Model) FinishReconcile(version uint64) Outcome {
	r := &m.redis
	switch {
	case r.Ready && version <= m.Version:
		return m.is(Done)
	case r.Reconciled == 0, version < r.Reconciled, version > m.Version:
		return m.is(Outdated)
	}
	r.Ready, r.Restored = true, false
	m.assignedEver = m.assignedEver || len(r.Fleet.Addresses) > 0 // any of them may have voted
	return m.changed()
}

// MarkRestored records that the log was restored from a backup. The replaced state had
// at most this version and ceiling, as far as is known, and this fleet if set says so, which may be
// unused.
func (m *Model) MarkRestored(version uint64, ceiling fencing.Token, fleet engine.Fleet, set, unused bool) Outcome {
	r := &m.redis
	m.Version = max(m.Version, version) + 1<<20
	r.Ceiling = max(r.Ceiling, ceiling)
	if set {
		r.Fleet, r.Next, r.NextVersion, r.Now, r.Force, r.FleetSet = fleet, engine.Fleet{}, 0, false, false, true
	}
	m.forgotten = len(r.Fleet.Addresses) == 0
	r.Restored = !m.forgotten && !unused
	if r.Restored && !r.Ready && !set {
		m.skip()
	}
	m.forgetLives()
	m.restoredEver = true
	return m.is(Done)
}

// SetMemberAPI records the address of a member, or removes it.
func (m *Model) SetMemberAPI(id, address string) Outcome {
	m.Members[id] = address
	return m.is(Done)
}
