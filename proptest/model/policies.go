package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// policyOf is the policy with the longest prefix of the name.
func policyOf(policies map[string]lease.Policy, name fencing.Resource) lease.Policy {
	var best lease.Policy
	for prefix, p := range policies {
		if strings.HasPrefix(string(name), prefix) && len(prefix) >= len(best.Prefix) {
			best = p
		}
	}
	return best
}

// modeOf is the mode of a lock; without a policy it is correctness.
func modeOf(policies map[string]lease.Policy, name fencing.Resource) lease.Mode {
	if mode := policyOf(policies, name).Mode; mode != lease.AnyMode {
		return mode
	}
	return lease.Correctness
}

func (m *Model) lockDelay(name fencing.Resource) time.Duration {
	return policyOf(m.policies, name).LockDelay
}

// SetPolicy adds or replaces a policy, at the version given unless that is 0.
func (m *Model) SetPolicy(p lease.Policy, version uint64) (Outcome, []Event) {
	next := maps.Clone(m.policies)
	next[p.Prefix] = p
	return m.changePolicies(next, version), nil
}

// DeletePolicy removes a policy, at the version given unless that is 0.
func (m *Model) DeletePolicy(prefix string, version uint64) (Outcome, []Event) {
	if _, found := m.policies[prefix]; !found {
		return Outcome{Code: NotHeld, Version: m.version}, nil
	}
	next := maps.Clone(m.policies)
	delete(next, prefix)
	return m.changePolicies(next, version), nil
}

// changePolicies takes the new policies unless they would change the mode of a
// lock that someone holds or wants, or that is delayed.
func (m *Model) changePolicies(next map[string]lease.Policy, version uint64) Outcome {
	if version != 0 && version != m.version {
		return Outcome{Code: Outdated, Version: m.version}
	}
	for _, name := range m.inUse() {
		if modeOf(next, name) != modeOf(m.policies, name) {
			return Outcome{Code: Busy, Resource: name, Version: m.version}
		}
	}
	m.policies = next
	m.version++
	return Outcome{Code: Done, Version: m.version}
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
