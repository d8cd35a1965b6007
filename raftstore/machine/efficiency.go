package machine

import (
	"maps"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// tokenStep is how many tokens the Redis nodes may accept before the log raises the ceiling, and the
	// step by which tokens are raised when something may have been forgotten.
	tokenStep fencing.Token = 1 << 32
	// versionStep is the step by which versions are raised after the log was rolled
	// back. It exceeds what they can have advanced since the last report of a node.
	versionStep = 1 << 20
	// forgottenFleet is the step by which tokens are raised if the log may have forgotten
	// a whole fleet: it covers 63 raises of its ceiling. By default a gate refuses tokens
	// that are 2^40 above its mark.
	forgottenFleet fencing.Token = 1 << 38
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
	used           bool // a life was named, or the log was rolled back
	ready          bool
	restored       bool   // with this fleet, and not ready since
	reconciled     uint64 // the version of the last Reconcile with this fleet; 0 before it
	fleetSet       bool   // a fleet was set once, possibly one without nodes
	forgotten      bool   // the log was rolled back without a fleet, and had none since

	lives []Life // by the order of fleet.Addresses
	open  []Set  // older sets of lives that may still grant, by version; replaced, never changed
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
	// Fresh: the log has never named a life and was never rolled back, so a Redis
	// node without data has nothing to report.
	Fresh bool
	// Ready: the log knows everything that the Redis nodes can have accepted.
	Ready bool
	// Restored: the log was rolled back with this fleet and has not been Ready since.
	Restored bool
	// ReconcileVersion is the version of the last Reconcile with this fleet. While it is
	// 0, no life is named.
	ReconcileVersion uint64
	// FleetSet: a fleet was set once, possibly one without nodes.
	FleetSet bool
	// Lives are the lives that the topology names, by the order of Fleet.Addresses.
	Lives []Life
	// Open are the older sets of lives that may still grant, by version. A life is
	// initialised only when no set is older than the version that first named it.
	Open []Set
	// Migrations are the migrations in progress.
	Migrations []Migration
}

// Unused reports whether the fleet has never granted a lock.
func (e *Efficiency) Unused() bool { return !e.Ready && !e.Restored }

// Efficiency returns the state of efficiency mode according to the log.
func (m *Machine) Efficiency() Efficiency {
	return Efficiency{Version: m.version, Fleet: m.fleet, Next: m.nextFleet, NextVersion: m.nextVersion,
		NextNow:   m.nextNow,
		NextForce: m.nextForce, Floor: m.floor, Ceiling: m.ceiling, Fresh: !m.used, Ready: m.ready, Restored: m.restored,
		ReconcileVersion: m.reconciled, FleetSet: m.fleetSet, Lives: m.lives, Open: m.open, Migrations: m.Migrations()}
}

// Topology returns the topology. It is not Ready while the fleet changes: a node of the
// old fleet would accept calls under the current version.
func (m *Machine) Topology() engine.Topology {
	return engine.Topology{Version: m.version, Policies: m.policies, Fleet: m.fleet, Lives: lifeNames(m.lives),
		Ready: m.ready && m.nextVersion == 0}
}

// Ceiling returns the largest token that the Redis nodes may accept.
func (m *Machine) Ceiling() fencing.Token { return m.ceiling }

// MemberAPIs returns the API addresses of the members, by ID.
func (m *Machine) MemberAPIs() map[string]string { return maps.Clone(m.memberAPI) }

func (c *SetFleet) apply(m *Machine) Result {
	if c.Version != 0 && c.Version != m.version {
		return Result{Code: Outdated, Version: m.version}
	}
	m.fleetSet = true
	switch pending := m.nextVersion != 0; {
	case c.Force && m.restored && !c.Fleet.Equal(m.fleet): // its nodes may be those of a fleet that was replaced since
		m.version++
		m.replaceFleet(c.Fleet)
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
		m.replaceFleet(c.Fleet)
	default:
		m.version++
		m.nextFleet, m.nextVersion, m.nextNow, m.nextForce = c.Fleet, m.version, c.Now, c.Force
	}
	return Result{Code: Done, Version: m.version}
}

// replaceFleet makes f the fleet. The next Reconcile names its lives.
func (m *Machine) replaceFleet(f engine.Fleet) {
	m.clearNextFleet()
	m.fleet = f
	m.clearLives()
	switch {
	case m.restored && f.IsZero(): // nothing can report the tokens that the log has forgotten
		m.restored = false
		m.skipForgottenFleet()
		m.lastToken = m.ceiling
	case m.forgotten && !f.IsZero():
		m.forgotten = false
		m.skipForgottenFleet()
	}
}

// clearLives stops grants in efficiency mode until the log is reconciled with the fleet.
func (m *Machine) clearLives() {
	m.lives, m.open, m.ready, m.reconciled = nil, nil, false, 0
	if !m.fleet.IsZero() {
		m.lives = make([]Life, len(m.fleet.Addresses))
	}
}

// skipForgottenFleet moves the tokens of efficiency mode past those of a fleet that the log
// may have forgotten.
func (m *Machine) skipForgottenFleet() { m.ceiling = pastForgottenFleet(max(m.ceiling, m.lastToken)) }

// pastForgottenFleet returns a token above all that a forgotten fleet has granted, from the largest known one.
func pastForgottenFleet(known fencing.Token) fencing.Token {
	return min(known+forgottenFleet, fencing.MaxToken)
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
	m.version++
	m.replaceFleet(m.nextFleet)
	// Nodes that were in this fleet before still have its state and would continue
	// below the tokens of the fleet in between. Other nodes may have been used without
	// this log. So the log reconciles with the new fleet first.
	m.floor = m.ceiling
	return Result{Code: Done, Version: m.version}
}

func (c *RaiseCeiling) apply(m *Machine) Result {
	m.ceiling = max(m.ceiling, c.To)
	return Result{Code: Done, Version: m.version}
}

func (c *Reconcile) apply(m *Machine) Result {
	if m.ready || c.At != 0 && c.At != m.version || !m.ofFleet(c.Lives) || !m.ofFleet(c.Past) {
		return Result{Code: Outdated, Version: m.version}
	}
	if c.Ceiling != 0 || m.used {
		top := max(m.ceiling, c.Ceiling, m.lastToken)
		if top > fencing.MaxToken-4*tokenStep {
			return Result{Code: Exhausted, Version: m.version}
		}
		if m.used && !m.restored && c.Ceiling <= m.ceiling { // the log has forgotten nothing
			m.floor, m.lastToken = m.ceiling, max(m.lastToken, m.ceiling)
			m.ceiling += tokenStep
		} else {
			// The lastToken of a forgotten log may be one step above the ceiling that its
			// nodes report.
			m.floor = top + 2*tokenStep
			m.ceiling = m.floor + tokenStep
			m.lastToken = m.ceiling + tokenStep
		}
	}
	m.version = max(m.version, c.Version) + 1
	if m.restored { // clients may know newer versions than the nodes
		m.version += versionStep
	}
	m.clearLives()
	for i, name := range c.Lives {
		m.lives[i].Name = name
	}
	m.reconciled = m.version
	if m.restored && len(c.Past) > 0 {
		m.open = []Set{{Version: m.version - 1, Lives: slices.Clone(c.Past)}}
	}
	return Result{Code: Done, Version: m.version}
}

// ofFleet reports whether there is a life for each node, or none at all.
func (m *Machine) ofFleet(lives []string) bool {
	return len(lives) == 0 || len(lives) == len(m.fleet.Addresses)
}

func (c *FinishReconcile) apply(m *Machine) Result {
	switch {
	case m.ready && c.Version <= m.version: // already finished
		return Result{Code: Done, Version: m.version}
	case m.reconciled == 0 || c.Version < m.reconciled || c.Version > m.version:
		return Result{Code: Outdated, Version: m.version}
	}
	m.ready, m.restored, m.used = true, false, m.used || !m.fleet.IsZero()
	m.version++
	return Result{Code: Done, Version: m.version}
}

// VersionAt returns the version from which a log that is restored at this Unix time continues. A log advances by fewer
// versions in a second, so the version exceeds those of every other log that was restored from the same backup
// before, and clients that know one of these logs accept the topology of the new one.
func VersionAt(unix int64) uint64 {
	const aSecond = 1 << 19
	return min(uint64(max(unix, 0)), maxVersion/2/aSecond) * aSecond
}

func (c *MarkRestored) apply(m *Machine) Result {
	m.version = max(m.version, c.Version) + versionStep
	m.ceiling = max(m.ceiling, c.Ceiling)
	if c.FleetSet {
		m.clearNextFleet()
		m.fleet, m.fleetSet = c.Fleet, true
	}
	// Nodes of a fleet that was ready are told before another one replaces it, and they
	// report that. Any other fleet may have been replaced without a trace.
	m.used, m.restored, m.forgotten = true, !m.fleet.IsZero() && !c.FleetUnused, m.fleet.IsZero()
	if m.restored && !m.ready && !c.FleetSet {
		m.skipForgottenFleet()
	}
	m.clearLives()
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
