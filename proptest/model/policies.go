package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// rule is the state of one prefix: its policy, and the migration of its locks to another
// mode, if one is in progress.
type rule struct {
	policy    *engine.Policy // nil while the first policy of a prefix migrates its locks
	migration *migration
}

// migration moves the locks of one rule from a mode to another.
type migration struct {
	from, to engine.Mode
	policy   *engine.Policy // after the migration; nil if it deletes the rule
	version  uint64
	now      bool
}

// mode returns the mode of the locks of a rule: the old one during a migration.
func (r *rule) mode() engine.Mode {
	switch {
	case r == nil:
		return engine.Correctness
	case r.migration != nil:
		return r.migration.from
	}
	return r.policy.Mode
}

// longest returns the rule with the longest prefix of a text, other than the text itself
// if proper is set.
func (m *Model) longest(text string, proper bool) (string, *rule) {
	best, found := "", (*rule)(nil)
	for prefix, r := range m.rules {
		if strings.HasPrefix(text, prefix) && !(proper && prefix == text) && (found == nil || len(prefix) > len(best)) {
			best, found = prefix, r
		}
	}
	return best, found
}

func (m *Model) ruleOf(name fencing.Resource) *rule {
	_, r := m.longest(string(name), false)
	return r
}

func (m *Model) modeOf(name fencing.Resource) engine.Mode { return m.ruleOf(name).mode() }

// migrating reports whether a lock is migrating to another mode.
func (m *Model) migrating(name fencing.Resource) bool {
	r := m.ruleOf(name)
	return r != nil && r.migration != nil
}

// lockDelay returns the lock-delay of a lock's policy: the old one during a migration.
func (m *Model) lockDelay(name fencing.Resource) time.Duration {
	for prefix, r := m.longest(string(name), false); r != nil; prefix, r = m.longest(prefix, true) {
		if r.policy != nil {
			return r.policy.LockDelay
		}
	}
	return 0
}

// Policies returns the policies as clients see them, the longest prefix first.
func (m *Model) Policies() []engine.Policy {
	var all []engine.Policy
	for prefix, r := range m.rules {
		if r.migration == nil {
			all = append(all, *r.policy)
			continue
		}
		shown := r.policy
		if r.migration.policy != nil {
			shown = r.migration.policy
		}
		all = append(all, engine.Policy{Prefix: prefix, Mode: r.migration.from, Next: r.migration.to,
			TTL: shown.TTL, Renew: shown.Renew, Drift: shown.Drift})
	}
	slices.SortFunc(all, func(a, b engine.Policy) int {
		return cmp.Or(len(b.Prefix)-len(a.Prefix), strings.Compare(a.Prefix, b.Prefix))
	})
	return all
}

// changed makes a new version.
func (m *Model) changed() Outcome {
	m.Version++
	return m.is(Done)
}

// is returns an outcome with the version.
func (m *Model) is(code Code) Outcome { return Outcome{Code: code, Version: m.Version} }

func (m *Model) refuseMigrating(r *rule) Outcome {
	o := m.is(Migrating)
	o.Mode, o.Next = r.migration.from, r.migration.to
	return o
}

// SetPolicy adds or replaces a policy, at the given version unless that is 0. If its
// locks have the other mode, they migrate first.
func (m *Model) SetPolicy(p engine.Policy, version uint64, now bool) Outcome {
	if version != 0 && version != m.Version {
		return m.is(Outdated)
	}
	r := m.rules[p.Prefix]
	if r != nil && r.migration != nil {
		if r.migration.to != p.Mode {
			return m.refuseMigrating(r)
		}
		if r.migration.policy == nil || *r.migration.policy != p {
			r.migration.policy = &p
			m.Version++
		}
		m.hurry(p.Prefix, now)
		return m.is(Done)
	}
	have := r.mode()
	if r == nil {
		_, above := m.longest(p.Prefix, true)
		have = above.mode()
	}
	if have == p.Mode {
		m.rules[p.Prefix] = &rule{policy: &p}
		return m.changed()
	}
	return m.migrate(p.Prefix, &migration{from: have, to: p.Mode, policy: &p}, now)
}

// DeletePolicy removes a policy, at the given version unless that is 0. Its locks get
// the mode of the next shorter prefix, by a migration if necessary.
func (m *Model) DeletePolicy(prefix string, version uint64, now bool) Outcome {
	r := m.rules[prefix]
	_, above := m.longest(prefix, true)
	switch {
	case version != 0 && version != m.Version:
		return m.is(Outdated)
	case r == nil:
		return m.is(NotHeld)
	case r.migration != nil && r.migration.policy != nil:
		return m.refuseMigrating(r)
	case r.migration != nil:
		m.hurry(prefix, now)
		return m.is(Done)
	case above != nil && above.migration != nil:
		return m.refuseMigrating(above)
	case above.mode() == r.mode():
		delete(m.rules, prefix)
		return m.changed()
	}
	return m.migrate(prefix, &migration{from: r.mode(), to: above.mode()}, now)
}

// migrate begins a migration: from now on these locks are not granted. EndRequests cancels
// their waiters. Redis must continue above all tokens that were granted here.
func (m *Model) migrate(prefix string, mv *migration, now bool) Outcome {
	if mv.to == engine.Efficiency {
		if max(m.redis.Ceiling, m.LastToken)+step > fencing.MaxToken {
			return m.is(Exhausted)
		}
		m.redis.Floor = max(m.redis.Floor, m.LastToken)
		m.redis.Ceiling = max(m.redis.Ceiling, m.redis.Floor+step)
	}
	m.Version++
	mv.version, mv.now = m.Version, now
	if m.rules[prefix] == nil {
		m.rules[prefix] = &rule{}
	}
	m.rules[prefix].migration = mv
	if mv.from == engine.Correctness {
		m.startSweep(prefix)
	}
	return m.is(Done)
}

// hurry makes EndRequests break the holders of a migration, which does not wait for them.
func (m *Model) hurry(prefix string, now bool) {
	if mv := m.rules[prefix].migration; now && !mv.now {
		mv.now = true
		m.Version++
		if mv.from == engine.Correctness {
			m.startSweep(prefix)
		}
	}
}

// AbortMigration aborts a migration. Its locks keep their mode and policy. A prefix without a
// policy gets one if the next shorter prefix has another mode or is migrating.
func (m *Model) AbortMigration(prefix string) Outcome {
	r := m.rules[prefix]
	if r == nil || r.migration == nil {
		return m.is(NotHeld)
	}
	have := r.mode()
	r.migration = nil
	if r.policy == nil {
		m.dissolve(prefix, have)
	}
	return m.changed()
}

// FinishMigration completes the migration that began with this version: its locks get the new
// mode. Redis has granted them no token above granted, unless that is 0.
func (m *Model) FinishMigration(prefix string, version uint64, granted fencing.Token) Outcome {
	r := m.rules[prefix]
	switch {
	case (r == nil || r.migration == nil) && version <= m.Version:
		return m.is(Done)
	case r == nil || r.migration == nil || r.migration.version != version:
		return m.is(Outdated)
	}
	mv := r.migration
	if mv.to == engine.Efficiency {
		if used := m.locksOf(prefix); len(used) > 0 {
			o := m.is(Busy)
			o.Resource = used[0]
			return o
		}
	} else {
		if len(m.redis.Fleet.Addresses) > 0 && !m.redis.Ready {
			return m.is(NotReady)
		}
		if granted == 0 || granted > m.redis.Ceiling {
			granted = m.redis.Ceiling
		}
		m.LastToken = max(m.LastToken, granted)
	}
	if mv.policy != nil {
		m.rules[prefix] = &rule{policy: mv.policy}
	} else {
		m.dissolve(prefix, mv.to)
	}
	return m.changed()
}

// dissolve removes the rule of a prefix, unless its locks need it to keep this mode.
func (m *Model) dissolve(prefix string, mode engine.Mode) {
	delete(m.rules, prefix)
	if _, above := m.longest(prefix, true); above.mode() != mode || above != nil && above.migration != nil {
		m.rules[prefix] = &rule{policy: &engine.Policy{Prefix: prefix, Mode: mode}}
	}
}

// Migrations returns the migrations in progress, sorted by prefix.
func (m *Model) Migrations() []Migration {
	var all []Migration
	for _, prefix := range slices.Sorted(maps.Keys(m.rules)) {
		mv := m.rules[prefix].migration
		if mv == nil {
			continue
		}
		all = append(all, Migration{Prefix: prefix, From: mv.from, To: mv.to, Version: mv.version, Now: mv.now,
			Delete: mv.policy == nil, Holders: len(m.locksOf(prefix))})
	}
	return all
}

// Migration is a migration in progress.
type Migration struct {
	Prefix      string
	From, To    engine.Mode
	Version     uint64
	Now, Delete bool
	Holders     int // locks that are held, waited for or in a lock-delay
}

// locksOf returns the locks in use whose longest prefix is this one, sorted.
func (m *Model) locksOf(prefix string) []fencing.Resource {
	return slices.DeleteFunc(m.inUse(), func(name fencing.Resource) bool {
		best, r := m.longest(string(name), false)
		return r == nil || best != prefix
	})
}

// inUse returns the names that have holders, waiters or a lock-delay, sorted.
func (m *Model) inUse() []fencing.Resource {
	var names []fencing.Resource
	for _, a := range m.requests {
		if a.state != over {
			names = append(names, a.request.Resources...)
		}
	}
	for name, delay := range m.delays {
		if delay != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
