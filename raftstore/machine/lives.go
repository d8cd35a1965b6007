package machine

import (
	"slices"

	"github.com/leased-project/leased/fencing"
)

// maxOpen limits the sets of lives that may still grant.
const maxOpen = 64

// Life is the life of a Redis node that the topology names. The log does not interpret the
// name.
type Life struct {
	// Name is empty for a node without a life: no call goes to it.
	Name string
	// Pending: the life does not vote yet.
	Pending bool
	// Floor is set while the life is pending, once no older set of lives is open. No token that was granted
	// under an older version is above it.
	Floor fencing.Token
	// Version is the version that first named the life; 0 for a life that voted before
	// the log knew it.
	Version uint64
}

// Set is the set of lives that the topology named up to a version, by the order of
// Fleet.Addresses. Callers with that version may still use it.
type Set struct {
	Version uint64
	Lives   []string
}

// lifeNames returns the names of lives.
func lifeNames(lives []Life) []string {
	if len(lives) == 0 {
		return nil
	}
	list := make([]string, len(lives))
	for i, l := range lives {
		list[i] = l.Name
	}
	return list
}

func (c *NameLife) apply(m *Machine) Result {
	i := slices.Index(m.fleet.Addresses, c.Member)
	switch {
	case i >= 0 && m.lives[i].Name == c.Life && m.lives[i].Pending: // applied before
		return Result{Code: Done, Version: m.version}
	case i < 0 || c.Version != 0 && c.Version != m.version || slices.Contains(lifeNames(m.lives), c.Life):
		return Result{Code: Outdated, Version: m.version}
	case m.reconciled == 0: // the log may have forgotten its ceiling
		return Result{Code: NotReady, Version: m.version}
	case m.ceiling > fencing.MaxToken-tokenStep:
		return Result{Code: Exhausted, Version: m.version}
	case len(m.open) >= maxOpen:
		return Result{Code: TooManyOpen, Version: m.version}
	}
	if m.ready { // otherwise no caller has used this set
		m.open = append(slices.Clip(m.open), Set{Version: m.version, Lives: lifeNames(m.lives)})
	}
	m.version++
	m.lives = slices.Clone(m.lives)
	m.lives[i] = Life{Name: c.Life, Pending: true, Version: m.version}
	if !waits(m.lives[i], m.open) { // nothing was granted since the log was reconciled with the fleet
		m.lives[i].Floor = m.floor
	}
	m.ceiling = max(m.ceiling, m.floor+tokenStep)
	m.used = true
	return Result{Code: Done, Version: m.version}
}

// waits reports whether a life must not vote yet because an older set of lives may grant.
func waits(l Life, open []Set) bool { return l.Pending && len(open) > 0 && open[0].Version < l.Version }

func (c *FinishRecovery) apply(m *Machine) Result {
	i := slices.Index(m.fleet.Addresses, c.Member)
	if i < 0 || m.lives[i].Name != c.Life {
		return Result{Code: Outdated, Version: m.version}
	}
	m.lives = slices.Clone(m.lives)
	m.lives[i].Floor, m.lives[i].Pending = fencing.None, false
	return Result{Code: Done, Version: m.version}
}

func (c *CloseSets) apply(m *Machine) Result {
	before, first := m.open, slices.IndexFunc(m.open, func(s Set) bool { return s.Version >= c.Version })
	if first < 0 {
		first = len(m.open)
	}
	if m.open = slices.Clone(before[first:]); len(m.open) == 0 {
		m.open = nil
	}
	floor, ceiling := max(m.floor, min(c.Granted, m.ceiling)), m.ceiling
	if c.Granted == fencing.None { // no node exceeds the ceiling
		floor, ceiling = m.ceiling, min(m.ceiling+tokenStep, fencing.MaxToken)
	}
	m.lives = slices.Clone(m.lives)
	for i, l := range m.lives {
		if waits(l, before) && !waits(l, m.open) {
			m.lives[i].Floor, m.ceiling = floor, ceiling
		}
	}
	return Result{Code: Done, Version: m.version}
}
