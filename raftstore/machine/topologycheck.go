package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// checkTopology returns the first invariant that policies, migrations, the fleet or the
// members break.
func (m *Machine) checkTopology() error {
	moving := 0
	for _, p := range m.policies.All() {
		if p.Mode == engine.AnyMode {
			return fmt.Errorf("policy for %q has no mode", p.Prefix)
		}
		if p.Next == engine.AnyMode {
			continue
		}
		moving++
		if err := m.checkMigration(p, m.migrations[p.Prefix]); err != nil {
			return fmt.Errorf("migration of %q: %w", p.Prefix, err)
		}
	}
	if moving != len(m.migrations) {
		return fmt.Errorf("%d migrations, but %d policies are migrating", len(m.migrations), moving)
	}
	for _, prefix := range sortedKeys(m.sweeps) {
		after := m.sweeps[prefix]
		p := engine.Policy{Prefix: prefix, Mode: engine.Correctness}
		if (&SetPolicy{Policy: p}).validate() != nil || after != "" &&
			(after.Validate() != nil || !strings.HasPrefix(string(after), prefix)) {
			return fmt.Errorf("a sweep of the locks of %q is at %q", prefix, string(after))
		}
	}
	if err := m.checkFleet(); err != nil {
		return err
	}
	for _, id := range sortedKeys(m.memberAPI) {
		if err := (&SetMemberAPI{ID: id, Address: m.memberAPI[id]}).validate(); err != nil || m.memberAPI[id] == "" {
			return fmt.Errorf("member %q has the API address %q", id, m.memberAPI[id])
		}
	}
	return nil
}

// checkMigration compares a migration with its policy.
func (m *Machine) checkMigration(entry engine.Policy, mv *migration) error {
	switch {
	case mv == nil:
		return fmt.Errorf("is missing")
	case entry.Next == entry.Mode:
		return fmt.Errorf("leads to the mode that the locks have")
	case mv.version == 0 || mv.version > m.version:
		return fmt.Errorf("began with version %d of %d", mv.version, m.version)
	case mv.delete && !mv.existed:
		return fmt.Errorf("deletes a policy that did not exist")
	case !mv.delete && ((&SetPolicy{Policy: mv.target}).validate() != nil || mv.target.Prefix != entry.Prefix ||
		mv.target.Mode != entry.Next):
		return fmt.Errorf("ends with the policy %+v", mv.target)
	case mv.existed && ((&SetPolicy{Policy: mv.before}).validate() != nil || mv.before.Prefix != entry.Prefix ||
		mv.before.Mode != entry.Mode):
		return fmt.Errorf("began with the policy %+v", mv.before)
	}
	return nil
}

func (m *Machine) checkFleet() error {
	if err := validateFleet(m.fleet); err != nil {
		return err
	}
	if err := validateFleet(m.nextFleet); err != nil {
		return err
	}
	switch {
	case m.nextVersion > m.version || m.reconciled > m.version:
		return fmt.Errorf("fleet %d or reconcile %d is of a version above %d", m.nextVersion, m.reconciled, m.version)
	case m.nextVersion != 0 && m.nextFleet.Equal(m.fleet):
		return fmt.Errorf("the next fleet is the current one")
	case m.floor > m.ceiling || m.ceiling > fencing.MaxToken:
		return fmt.Errorf("floor %d, ceiling %d", m.floor, m.ceiling)
	case m.ready && (m.restored || m.reconciled == 0):
		return fmt.Errorf("efficiency mode is ready and waits for the Redis nodes")
	case m.restored && (!m.used || m.fleet.IsZero()):
		return fmt.Errorf("a log that was rolled back is fresh, or has no fleet")
	case m.forgotten && (!m.used || !m.fleet.IsZero()):
		return fmt.Errorf("a log that was rolled back without a fleet is fresh, or has one")
	case !m.fleetSet && !m.fleet.IsZero():
		return fmt.Errorf("a fleet that was not set")
	}
	return m.checkLives()
}

// checkLives returns the first invariant that the lives, or the older sets of lives, break.
func (m *Machine) checkLives() error {
	if len(m.lives) != len(m.fleet.Addresses) {
		return fmt.Errorf("%d lives of %d Redis nodes", len(m.lives), len(m.fleet.Addresses))
	}
	if err := validateLives(lifeNames(m.lives)); err != nil {
		return err
	}
	for _, l := range m.lives {
		switch {
		case l.Name != "" && m.reconciled == 0:
			return fmt.Errorf("life %q is named before the log is reconciled", l.Name)
		case l.Version == 0 && l.Pending || l.Floor > m.ceiling || l.Floor != fencing.None &&
			(!l.Pending || waits(l, m.open)):
			return fmt.Errorf("life %q has the floor %d", l.Name, l.Floor)
		case l.Version != 0 && (l.Name == "" || l.Version <= m.reconciled || l.Version > m.version || !m.used):
			return fmt.Errorf("life %q is named by version %d", l.Name, l.Version)
		}
	}
	if len(m.open) > maxOpen || len(m.open) > 0 && m.reconciled == 0 {
		return fmt.Errorf("%d older sets of lives", len(m.open))
	}
	for i, s := range m.open {
		if len(s.Lives) != len(m.lives) || slices.ContainsFunc(s.Lives, func(life string) bool {
			return len(life) > maxText
		}) {
			return fmt.Errorf("set of version %d has %d lives of %d", s.Version, len(s.Lives), len(m.lives))
		}
		if s.Version+1 < m.reconciled || s.Version >= m.version || i > 0 && s.Version <= m.open[i-1].Version {
			return fmt.Errorf("set of version %d is out of order", s.Version)
		}
	}
	return nil
}
