package machine

import (
	"slices"

	"github.com/leased-project/leased/fencing"
)

// maxOpen limits the sets of lives that may still grant.
const maxOpen = 64

// Life is the life of a Redis node that the topology names, and the range of tokens that
// the log assigned to it. The log does not interpret the name.
type Life struct {
	// Name is empty for a node without a life: no call goes to it.
	Name string
	// Floor and Ceiling are the range that initialises the node: tokens above Floor, up
	// to Ceiling. They are zero once the life votes.
	Floor, Ceiling fencing.Token
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

// Range has the tokens that were assigned to a Redis node: above Floor, up to Ceiling.
type Range struct {
	Floor, Ceiling fencing.Token
	// Version is the version that names the node's life. The node must not vote while
	// an older set of lives may grant.
	Version uint64
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

func (c *AssignRange) apply(m *Machine) Result {
	i := slices.Index(m.fleet.Addresses, c.Member)
	switch {
	case i >= 0 && m.lives[i].Name == c.Life && m.lives[i].Ceiling != 0: // applied before
		return m.assigned(m.lives[i])
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
	m.lives[i] = Life{Name: c.Life, Floor: m.ceiling, Ceiling: m.ceiling + tokenStep, Version: m.version}
	m.ceiling += tokenStep
	m.used = true
	return m.assigned(m.lives[i])
}

func (m *Machine) assigned(l Life) Result {
	return Result{Code: Done, Version: m.version, Range: &Range{Floor: l.Floor, Ceiling: l.Ceiling, Version: l.Version}}
}

func (c *FinishRecovery) apply(m *Machine) Result {
	i := slices.Index(m.fleet.Addresses, c.Member)
	if i < 0 || m.lives[i].Name != c.Life {
		return Result{Code: Outdated, Version: m.version}
	}
	m.lives = slices.Clone(m.lives)
	m.lives[i].Floor, m.lives[i].Ceiling = 0, 0
	return Result{Code: Done, Version: m.version}
}

func (c *CloseSets) apply(m *Machine) Result {
	open := slices.IndexFunc(m.open, func(s Set) bool { return s.Version >= c.Version })
	if open < 0 {
		open = len(m.open)
	}
	if m.open = slices.Clone(m.open[open:]); len(m.open) == 0 {
		m.open = nil
	}
	return Result{Code: Done, Version: m.version}
}
