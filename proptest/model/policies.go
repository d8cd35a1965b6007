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

// rule is what the model knows of one prefix: the policy that holds, and the
// migration of its locks to another mode, if one is under way.
type rule struct {
	policy    *engine.Policy // nil while the first policy of a prefix migrates its locks
	migration *migration
}

// migration moves the locks of one rule from a mode to another.
type migration struct {
	from, to engine.Mode
	policy   *engine.Policy // that will hold; nil if the rule is to be deleted
	version  uint64
	now      bool
}

// mode is the mode that the locks of a rule have; the old one during a
// migration.
func (r *rule) mode() engine.Mode {
	switch {
	case r == nil:
		return engine.Correctness
	case r.migration != nil:
		return r.migration.from
	}
	return r.policy.Mode
}

// longest is the rule with the longest prefix of a text, other than the text
// itself if proper is set.
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

// migrating reports whether a lock is on its way to another mode.
func (m *Model) migrating(name fencing.Resource) bool {
	r := m.ruleOf(name)
	return r != nil && r.migration != nil
}

// lockDelay is that of the policy that holds, which during a migration is the one
// from before.
func (m *Model) lockDelay(name fencing.Resource) time.Duration {
	for prefix, r := m.longest(string(name), false); r != nil; prefix, r = m.longest(prefix, true) {
		if r.policy != nil {
			return r.policy.LockDelay
		}
	}
	return 0
}

// Policies are the policies as clients see them, the longest prefix first.
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

// changed counts a new version.
func (m *Model) changed() Outcome {
	m.version++
	return m.is(Done)
}

// is an outcome that tells the version.
func (m *Model) is(code Code) Outcome { return Outcome{Code: code, Version: m.version} }

func (m *Model) refuseMigrating(r *rule) Outcome {
	o := m.is(Moving)
	o.Mode, o.Next = r.migration.from, r.migration.to
	return o
}

// SetPolicy adds or replaces a policy, at the version given unless that is 0. If
// its locks have the other mode they migrate first.
func (m *Model) SetPolicy(p engine.Policy, version uint64, now bool) (Outcome, []Event) {
	m.events = nil
	if version != 0 && version != m.version {
		return m.is(Outdated), nil
	}
	r := m.rules[p.Prefix]
	if r != nil && r.migration != nil {
		if r.migration.to != p.Mode {
			return m.refuseMigrating(r), nil
		}
		if r.migration.policy == nil || *r.migration.policy != p {
			r.migration.policy = &p
			m.version++
		}
		m.hurry(p.Prefix, now)
		return m.is(Done), m.events
	}
	have := r.mode()
	if r == nil {
		_, above := m.longest(p.Prefix, true)
		have = above.mode()
	}
	if have == p.Mode {
		m.rules[p.Prefix] = &rule{policy: &p}
		return m.changed(), nil
	}
	return m.migrate(p.Prefix, &migration{from: have, to: p.Mode, policy: &p}, now)
}

// DeletePolicy removes a policy, at the version given unless that is 0. Its locks
// get the mode of the policy above it, by a migration if need be.
func (m *Model) DeletePolicy(prefix string, version uint64, now bool) (Outcome, []Event) {
	m.events = nil
	r := m.rules[prefix]
	_, above := m.longest(prefix, true)
	switch {
	case version != 0 && version != m.version:
		return m.is(Outdated), nil
	case r == nil:
		return m.is(NotHeld), nil
	case r.migration != nil && r.migration.policy != nil:
		return m.refuseMigrating(r), nil
	case r.migration != nil:
		m.hurry(prefix, now)
		return m.is(Done), m.events
	case above != nil && above.migration != nil:
		return m.refuseMigrating(above), nil
	case above.mode() == r.mode():
		delete(m.rules, prefix)
		return m.changed(), nil
	}
	return m.migrate(prefix, &migration{from: r.mode(), to: above.mode()}, now)
}

// migrate begins a migration: from now on nobody is granted these locks. On the
// way to Redis those who wait are sent away, and Redis must go on above all tokens
// that were granted here.
func (m *Model) migrate(prefix string, way *migration, now bool) (Outcome, []Event) {
	if way.to == engine.Efficiency {
		ceiling := max(m.redis.Ceiling, m.lastToken) + step
		if ceiling > fencing.MaxToken {
			return m.is(Exhausted), nil
		}
		m.redis.Floor, m.redis.Ceiling = max(m.redis.Floor, m.lastToken), ceiling
	}
	m.version++
	way.version, way.now = m.version, now
	if m.rules[prefix] == nil {
		m.rules[prefix] = &rule{}
	}
	m.rules[prefix].migration = way
	var freed []fencing.Resource
	for _, name := range m.locksOf(prefix) {
		for _, a := range m.asks {
			if a.state == waiting && slices.Contains(a.request.Resources, name) {
				m.tell(WasCancelled, a)
				a.state = over // but it has not ended: it may be asked again
				freed = append(freed, a.request.Resources...)
			}
		}
	}
	m.grantWaiters(freed...)
	if now {
		m.breakAll(prefix)
	}
	return m.is(Done), m.events
}

// hurry makes a migration one that does not wait for holders.
func (m *Model) hurry(prefix string, now bool) {
	if way := m.rules[prefix].migration; now && !way.now {
		way.now = true
		m.version++
		m.breakAll(prefix)
	}
}

// breakAll takes the locks of a prefix from their holders and ends their
// lock-delays, without new ones.
func (m *Model) breakAll(prefix string) {
	var freed []fencing.Resource
	for _, name := range m.locksOf(prefix) {
		for _, holder := range m.Inspect(name).Holders {
			a := m.live(Attempt{holder.Session, holder.Nonce})
			m.tell(WasBroken, a)
			a.state = over
			m.ended[Attempt{a.session, a.request.Nonce}] = true
			freed = append(freed, a.request.Resources...)
		}
		if m.delays[name] != 0 {
			delete(m.delays, name)
			m.events = append(m.events, Event{What: WasOpened, Resources: []fencing.Resource{name}, Mode: m.modeOf(name)})
			freed = append(freed, name)
		}
	}
	m.grantWaiters(freed...)
}

// AbortMove ends a migration. Its locks keep their mode, with the policy that
// they had; a prefix that had none gets one if the policy above it does not have
// this mode, or is migrating.
func (m *Model) AbortMove(prefix string) (Outcome, []Event) {
	r := m.rules[prefix]
	if r == nil || r.migration == nil {
		return m.is(NotHeld), nil
	}
	have := r.mode()
	r.migration = nil
	if r.policy == nil {
		m.dissolve(prefix, have)
	}
	return m.changed(), nil
}

// FinishMove ends the migration that began with this version: its locks have the
// new mode.
func (m *Model) FinishMove(prefix string, version uint64) (Outcome, []Event) {
	r := m.rules[prefix]
	switch {
	case (r == nil || r.migration == nil) && version <= m.version:
		return m.is(Done), nil
	case r == nil || r.migration == nil || r.migration.version != version:
		return m.is(Outdated), nil
	}
	way := r.migration
	if way.to == engine.Efficiency {
		for _, name := range m.locksOf(prefix) {
			if len(m.Inspect(name).Holders) > 0 || m.delays[name] != 0 {
				o := m.is(Busy)
				o.Resource = name
				return o, nil
			}
		}
	} else {
		if len(m.redis.Fleet.Addresses) > 0 && !m.redis.Ready {
			return m.is(NotReady), nil
		}
		m.lastToken = max(m.lastToken, m.redis.Ceiling)
	}
	if way.policy != nil {
		m.rules[prefix] = &rule{policy: way.policy}
	} else {
		m.dissolve(prefix, way.to)
	}
	return m.changed(), nil
}

// dissolve removes the rule of a prefix if its locks have this mode without it.
func (m *Model) dissolve(prefix string, mode engine.Mode) {
	delete(m.rules, prefix)
	if _, above := m.longest(prefix, true); above.mode() != mode || above != nil && above.migration != nil {
		m.rules[prefix] = &rule{policy: &engine.Policy{Prefix: prefix, Mode: mode}}
	}
}

// Migrations are those under way, by prefix.
func (m *Model) Migrations() []Migration {
	var all []Migration
	for _, prefix := range slices.Sorted(maps.Keys(m.rules)) {
		way := m.rules[prefix].migration
		if way == nil {
			continue
		}
		closed := 0
		for _, name := range m.locksOf(prefix) {
			if len(m.Inspect(name).Holders) > 0 || m.delays[name] != 0 {
				closed++
			}
		}
		all = append(all, Migration{Prefix: prefix, From: way.from, To: way.to, Version: way.version, Now: way.now,
			Delete: way.policy == nil, Holders: closed})
	}
	return all
}

// Migration is a migration that is under way.
type Migration struct {
	Prefix      string
	From, To    engine.Mode
	Version     uint64
	Now, Delete bool
	Holders     int // locks that are held, or closed by a lock-delay
}

// locksOf is the locks in use whose longest prefix is this one, sorted.
func (m *Model) locksOf(prefix string) []fencing.Resource {
	return slices.DeleteFunc(m.inUse(), func(name fencing.Resource) bool {
		best, r := m.longest(string(name), false)
		return r == nil || best != prefix
	})
}

// inUse is the names that anyone holds or wants, or that are delayed, sorted.
func (m *Model) inUse() []fencing.Resource {
	var names []fencing.Resource
	for _, a := range m.asks {
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
