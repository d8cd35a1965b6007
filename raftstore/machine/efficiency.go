package machine

import (
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// tokenStep is the size of a range of tokens, and the step by which tokens are
	// raised when something may have been forgotten.
	tokenStep fencing.Token = 1 << 32
	// versionStep is the step by which versions are raised after the log was rolled
	// back. It exceeds what they can have advanced since.
	versionStep = 1 << 32
)

// efficiency is the state of the Redis nodes according to the log. The log is the
// authority on their tokens: no node accepts a token above ceiling.
type efficiency struct {
	fleet       engine.Fleet
	nextFleet   engine.Fleet
	nextVersion uint64 // that started the change to nextFleet; 0 if there is none
	nextNow     bool
	nextForce   bool

	floor, ceiling fencing.Token
	used           bool // a range was assigned, or the log was rolled back
	ready          bool
	restored       bool
	reconciled     uint64   // the version of the last Reconcile; 0 once ready, or before it
	assigned       []string // members that got a range in this fleet, in ascending order
}

// Efficiency is the state of efficiency mode according to the log.
type Efficiency struct {
	// Version is the version of the topology. Every Redis node should reach it.
	Version uint64
	Fleet   engine.Fleet
	// Next is the fleet of a change in progress, NextVersion the version that started
	// it; 0 if there is none.
	Next               engine.Fleet
	NextVersion        uint64
	NextNow, NextForce bool
	// Floor and Ceiling limit the tokens that the Redis nodes may accept. Every node
	// should reach both.
	Floor, Ceiling fencing.Token
	// Fresh: the log has never assigned a range and was never rolled back, so a Redis
	// node without data has nothing to report.
	Fresh bool
	// Ready: the log knows everything that the Redis nodes can have accepted.
	Ready bool
	// Restored: the log was rolled back and has not been Ready since.
	Restored bool
	// ReconcileVersion is the version of a Reconcile without its FinishReconcile; 0 if
	// there is none. If it is 0 and the log is not Ready, no range is assigned.
	ReconcileVersion uint64
	// Assigned are the members that got a range in this fleet.
	Assigned []string
	// Migrations are the migrations in progress.
	Migrations []Migration
}

// Range has the tokens that were assigned to a Redis node: above Floor, up to Ceiling.
type Range struct {
	Floor, Ceiling fencing.Token
	// Version is the current version. The node must not start with an older one.
	Version uint64
	// First: the member had no range in this fleet before.
	First bool
}

// Efficiency returns the state of efficiency mode according to the log.
func (m *Machine) Efficiency() Efficiency {
	return Efficiency{Version: m.version, Fleet: m.fleet, Next: m.nextFleet, NextVersion: m.nextVersion, NextNow: m.nextNow,
		NextForce: m.nextForce, Floor: m.floor, Ceiling: m.ceiling, Fresh: !m.used, Ready: m.ready, Restored: m.restored,
		ReconcileVersion: m.reconciled, Assigned: slices.Clone(m.assigned), Migrations: m.Migrations()}
}

// Topology returns the topology. It is not Ready while the fleet changes: a node of the
// old fleet would accept calls under the current version.
func (m *Machine) Topology() engine.Topology {
	return engine.Topology{Version: m.version, Policies: m.policies, Fleet: m.fleet, Ready: m.ready && m.nextVersion == 0}
}

// Ceiling returns the largest token that the Redis nodes may accept.
func (m *Machine) Ceiling() fencing.Token { return m.ceiling }

// MemberAPI returns the API address of a member, or "" if it is unknown.
func (m *Machine) MemberAPI(id string) string { return m.memberAPI[id] }

func (c *SetFleet) apply(m *Machine) Result {
	if c.Version != 0 && c.Version != m.version {
		return Result{Code: Outdated, Version: m.version}
	}
	switch pending := m.nextVersion != 0; {
	case pending && c.Fleet.Equal(m.nextFleet):
		if c.Now && !m.nextNow || c.Force && !m.nextForce {
			m.nextNow, m.nextForce = m.nextNow || c.Now, m.nextForce || c.Force
			m.version++
		}
	case c.Fleet.Equal(m.fleet):
		if pending {
			m.clearNextFleet()
			m.version++
		}
	case m.fleet.IsZero() || !m.ready && !m.restored: // it never granted a lock
		m.version++
		m.clearNextFleet()
		m.fleet, m.assigned, m.reconciled = c.Fleet, nil, 0
	default:
		m.version++
		m.nextFleet, m.nextVersion, m.nextNow, m.nextForce = c.Fleet, m.version, c.Now, c.Force
	}
	return Result{Code: Done, Version: m.version}
}

func (m *Machine) clearNextFleet() {
	m.nextFleet, m.nextVersion, m.nextNow, m.nextForce = engine.Fleet{}, 0, false, false
}

func (c *FinishFleet) apply(m *Machine) Result {
	switch {
	case m.nextVersion == 0 && c.Version <= m.version: // already finished, or cancelled
		return Result{Code: Done, Version: m.version}
	case m.nextVersion != c.Version:
		return Result{Code: Outdated, Version: m.version}
	}
	m.fleet, m.assigned = m.nextFleet, nil
	m.clearNextFleet()
	m.version++
	// Nodes that were in this fleet before still have its state and would continue
	// below the tokens of the fleet in between. Other nodes may have been used without
	// this log. So the log reconciles with the new fleet first.
	m.floor = m.ceiling
	m.ready, m.reconciled = false, 0
	return Result{Code: Done, Version: m.version}
}

func (c *AssignRange) apply(m *Machine) Result {
	switch {
	case !slices.Contains(m.fleet.Addresses, c.Member):
		return Result{Code: Outdated, Version: m.version}
	case !m.ready && m.reconciled == 0: // the log may have forgotten its ceiling
		return Result{Code: NotReady, Version: m.version}
	case m.ceiling > fencing.MaxToken-tokenStep:
		return Result{Code: Exhausted, Version: m.version}
	}
	at, known := slices.BinarySearch(m.assigned, c.Member)
	if !known {
		m.assigned = slices.Insert(m.assigned, at, c.Member)
	}
	floor := m.ceiling
	m.ceiling += tokenStep
	m.used = true
	return Result{Code: Done, Version: m.version, Range: &Range{Floor: floor, Ceiling: m.ceiling, Version: m.version, First: !known}}
}

func (c *RaiseCeiling) apply(m *Machine) Result {
	m.ceiling = max(m.ceiling, c.To)
	return Result{Code: Done, Version: m.version}
}

func (c *Reconcile) apply(m *Machine) Result {
	if m.ready {
		return Result{Code: Outdated, Version: m.version}
	}
	if c.Ceiling != 0 || m.used {
		top := max(m.ceiling, c.Ceiling, m.lastToken)
		if top > fencing.MaxToken-4*tokenStep {
			return Result{Code: Exhausted, Version: m.version}
		}
		// The lastToken of a forgotten log may be one step above the ceiling that its
		// nodes report.
		m.floor = top + 2*tokenStep
		m.ceiling = m.floor + tokenStep
		m.lastToken = m.ceiling + tokenStep
	}
	m.version = max(m.version, c.Version) + 1
	if m.restored { // clients may know newer versions than the nodes
		m.version += versionStep
	}
	m.reconciled = m.version
	return Result{Code: Done, Version: m.version}
}

func (c *FinishReconcile) apply(m *Machine) Result {
	switch {
	case m.ready && c.Version <= m.version: // already finished
		return Result{Code: Done, Version: m.version}
	case m.reconciled == 0 || c.Version < m.reconciled || c.Version > m.version:
		return Result{Code: Outdated, Version: m.version}
	}
	m.ready, m.restored, m.reconciled = true, false, 0
	// From now on any member may have voted, even one that never needed a range.
	m.assigned, m.used = slices.Sorted(slices.Values(m.fleet.Addresses)), m.used || !m.fleet.IsZero()
	m.version++
	return Result{Code: Done, Version: m.version}
}

func (c *MarkRestored) apply(m *Machine) Result {
	m.version = max(m.version, c.Version) + versionStep
	m.ceiling = max(m.ceiling, c.Ceiling)
	if !c.Fleet.IsZero() {
		m.clearNextFleet()
		m.fleet = c.Fleet
	}
	m.assigned = nil
	m.used, m.ready, m.restored, m.reconciled = true, false, true, 0
	return Result{Code: Done, Version: m.version}
}

func (c *SetMemberAPI) apply(m *Machine) Result {
	if c.Address == "" {
		delete(m.memberAPI, c.ID)
	} else {
		m.memberAPI[c.ID] = c.Address
	}
	return Result{Code: Done, Version: m.version}
}
