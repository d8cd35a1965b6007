package machine

import (
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// migration is a migration in progress. It affects the locks whose longest matching policy is
// the one for its prefix. They are not granted in either mode. The policy has the old
// mode as Mode and the new mode as Next.
type migration struct {
	version uint64 // that started it
	now     bool
	delete  bool          // the policy is removed when the migration is complete
	target  engine.Policy // the policy after the migration, unless delete
	before  engine.Policy // the policy before the migration, if existed
	existed bool          // there was a policy before
}

// Migration describes a migration in progress.
type Migration struct {
	Prefix   string
	From, To engine.Mode
	// Version is the version that started the migration. A Redis node that has reached
	// it refuses calls under older policies.
	Version uint64
	// Now: do not wait for leases to end.
	Now bool
	// Delete: the policy is removed when the migration is complete.
	Delete bool
	// Holders is the number of affected locks that are still held, delayed or waited for, at most
	// MaxHolders: no further ones are counted.
	Holders int
}

// MaxHolders is the maximum of Migration.Holders. It bounds the time of a read.
const MaxHolders = 1000

// Migrations returns the migrations in progress, by prefix.
func (m *Machine) Migrations() []Migration {
	var list []Migration
	for _, prefix := range sortedKeys(m.migrations) {
		mv, entry := m.migrations[prefix], m.entry(prefix)
		holders := 0
		for range m.locksOf(prefix) {
			if holders++; holders == MaxHolders {
				break
			}
		}
		list = append(list, Migration{Prefix: prefix, From: entry.Mode, To: entry.Next, Version: mv.version, Now: mv.now,
			Delete: mv.delete, Holders: holders})
	}
	return list
}

func (c *SetPolicy) apply(m *Machine) Result {
	if c.Version != 0 && c.Version != m.version {
		return Result{Code: Outdated, Version: m.version}
	}
	p := c.Policy
	entry, existed := m.lookup(p.Prefix)
	if mv := m.migrations[p.Prefix]; mv != nil {
		if p.Mode != entry.Next {
			return m.movingResult(p.Prefix)
		}
		if mv.delete || mv.target != p {
			mv.delete, mv.target = false, p
			m.policies = m.policies.With(migratingEntry(p, entry.Mode))
			m.version++
		}
		m.hasten(p.Prefix, mv, c.Now)
		return Result{Code: Done, Version: m.version}
	}
	from := modeOf(entry)
	if !existed {
		from = modeOf(m.parent(p.Prefix))
	}
	if from == p.Mode {
		m.policies = m.policies.With(p)
		m.version++
		return Result{Code: Done, Version: m.version}
	}
	return m.beginMigration(p.Prefix, migratingEntry(p, from), &migration{target: p, before: entry, existed: existed},
		c.Now)
}

func (c *DeletePolicy) apply(m *Machine) Result {
	entry, existed := m.lookup(c.Prefix)
	switch {
	case c.Version != 0 && c.Version != m.version:
		return Result{Code: Outdated, Version: m.version}
	case !existed:
		return Result{Code: NotHeld, Version: m.version}
	}
	if mv := m.migrations[c.Prefix]; mv != nil {
		if !mv.delete {
			return m.movingResult(c.Prefix)
		}
		m.hasten(c.Prefix, mv, c.Now)
		return Result{Code: Done, Version: m.version}
	}
	parent := m.parent(c.Prefix)
	if parent.Next != engine.AnyMode { // its locks would join a migration that started without them
		return m.movingResult(parent.Prefix)
	}
	to := modeOf(parent)
	if to == entry.Mode {
		m.policies, _ = m.policies.Without(c.Prefix)
		m.version++
		return Result{Code: Done, Version: m.version}
	}
	moving := migratingEntry(entry, entry.Mode)
	moving.Next = to
	return m.beginMigration(c.Prefix, moving, &migration{delete: true, before: entry, existed: true}, c.Now)
}

// migratingEntry returns the policy of locks that migrate from a mode to the mode of p. It
// has no lock delay, which efficiency mode does not support.
func migratingEntry(p engine.Policy, from engine.Mode) engine.Policy {
	p.Mode, p.Next, p.LockDelay = from, p.Mode, 0
	return p
}

// beginMigration stops grants of the locks of a prefix in both modes. Later tokens of
// efficiency mode are above all tokens that this machine has granted.
func (m *Machine) beginMigration(prefix string, entry engine.Policy, mv *migration, now bool) Result {
	if entry.Next == engine.Efficiency {
		if max(m.ceiling, m.lastToken) > fencing.MaxToken-tokenStep {
			return Result{Code: Exhausted, Version: m.version}
		}
		m.floor = max(m.floor, m.lastToken)
		m.ceiling = max(m.ceiling, m.floor+tokenStep)
	}
	m.version++
	mv.version, mv.now = m.version, now
	m.migrations[prefix] = mv
	m.policies = m.policies.With(entry)
	if entry.Mode == engine.Correctness {
		m.startSweep(prefix)
	}
	return Result{Code: Done, Version: m.version}
}

// hasten sets now on a migration in progress. A sweep then ends the leases of its locks.
func (m *Machine) hasten(prefix string, mv *migration, now bool) {
	if !now || mv.now {
		return
	}
	mv.now = true
	if m.entry(prefix).Mode == engine.Correctness {
		m.startSweep(prefix)
	}
	m.version++
}

func (c *AbortMigration) apply(m *Machine) Result {
	mv := m.migrations[c.Prefix]
	if mv == nil {
		return Result{Code: NotHeld, Version: m.version}
	}
	from := m.entry(c.Prefix).Mode
	delete(m.migrations, c.Prefix)
	if mv.existed {
		m.policies = m.policies.With(mv.before)
	} else {
		m.leaveTo(c.Prefix, from)
	}
	m.version++
	return Result{Code: Done, Version: m.version}
}

func (c *FinishMigration) apply(m *Machine) Result {
	mv := m.migrations[c.Prefix]
	switch {
	case mv == nil && c.Version <= m.version: // already finished, or aborted
		return Result{Code: Done, Version: m.version}
	case mv == nil || mv.version != c.Version:
		return Result{Code: Outdated, Version: m.version}
	}
	to := m.entry(c.Prefix).Next
	if to == engine.Efficiency {
		for used := range m.locksOf(c.Prefix) {
			return Result{Code: Busy, Resource: used, Version: m.version}
		}
	} else {
		if !m.ready && !m.fleet.IsZero() { // a log that was rolled back may have forgotten its ceiling
			return Result{Code: NotReady, Version: m.version}
		}
		granted := m.ceiling
		if c.Granted != fencing.None {
			granted = min(c.Granted, m.ceiling)
		}
		m.lastToken = max(m.lastToken, granted)
	}
	delete(m.migrations, c.Prefix)
	if mv.delete {
		m.leaveTo(c.Prefix, to)
	} else {
		m.policies = m.policies.With(mv.target)
	}
	m.version++
	return Result{Code: Done, Version: m.version}
}

// leaveTo removes the policy for a prefix if its locks have the given mode without it.
// Otherwise the parent policy has changed or is migrating, and the prefix keeps a policy
// with that mode.
func (m *Machine) leaveTo(prefix string, mode engine.Mode) {
	if above := m.parent(prefix); above.Next == engine.AnyMode && modeOf(above) == mode {
		m.policies, _ = m.policies.Without(prefix)
		return
	}
	m.policies = m.policies.With(engine.Policy{Prefix: prefix, Mode: mode})
}

// lookup returns the policy for exactly this prefix.
func (m *Machine) lookup(prefix string) (engine.Policy, bool) {
	for _, p := range m.policies.All() {
		if p.Prefix == prefix {
			return p, true
		}
	}
	return engine.Policy{}, false
}

// entry is lookup for a policy that exists.
func (m *Machine) entry(prefix string) engine.Policy {
	p, _ := m.lookup(prefix)
	return p
}

// parent returns the policy that applies to the locks of a prefix without the policy for
// that prefix, or the zero Policy.
func (m *Machine) parent(prefix string) engine.Policy {
	for _, p := range m.policies.All() { // the longest prefix first
		if p.Prefix != prefix && strings.HasPrefix(prefix, p.Prefix) {
			return p
		}
	}
	return engine.Policy{}
}

// movingResult refuses a change of a policy because of a migration.
func (m *Machine) movingResult(prefix string) Result {
	entry := m.entry(prefix)
	return Result{Code: Migrating, Mode: entry.Mode, Next: entry.Next, Version: m.version}
}

// isMigrating reports whether a lock is changing its mode.
func (m *Machine) isMigrating(name fencing.Resource) bool {
	return m.policies.For(name).Next != engine.AnyMode
}

// lockDelay returns the lock delay of a lock. During a migration it is the delay from
// before the migration.
func (m *Machine) lockDelay(name fencing.Resource) time.Duration {
	return m.delayBefore(m.policies.For(name))
}

func (m *Machine) delayBefore(p engine.Policy) time.Duration {
	if p.Next == engine.AnyMode {
		return p.LockDelay
	}
	if mv := m.migrations[p.Prefix]; mv.existed {
		return mv.before.LockDelay
	}
	return m.delayBefore(m.parent(p.Prefix))
}
