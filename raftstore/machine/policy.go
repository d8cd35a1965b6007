package machine

import "github.com/leased-project/leased/lease"

func (c *SetPolicy) apply(m *Machine) Result {
	return m.changePolicies(c.Version, m.policies.With(c.Policy))
}

func (c *DeletePolicy) apply(m *Machine) Result {
	next, found := m.policies.Without(c.Prefix)
	if !found {
		return Result{Code: NotHeld, Version: m.version}
	}
	return m.changePolicies(c.Version, next)
}

// changePolicies refuses to move a lock that is in use to another mode: its
// holder would not be known there, and a second one would be let in.
func (m *Machine) changePolicies(version uint64, next lease.Policies) Result {
	if version != 0 && version != m.version {
		return Result{Code: Outdated, Version: m.version}
	}
	for _, name := range sortedKeys(m.locks) {
		if policyMode(next, name) != m.modeOf(name) {
			return Result{Code: Busy, Resource: name, Version: m.version}
		}
	}
	m.policies = next
	m.version++
	return Result{Code: Done, Version: m.version}
}
