package machine

import (
	"maps"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Present describes the state that a snapshot replaces.
type Present struct {
	Efficiency
	LastToken fencing.Token
	Order     uint64
	memberAPI map[string]string
}

// Present returns the description of m for StartOver.
func (m *Machine) Present() Present {
	return Present{m.Efficiency(), m.lastToken, m.order, m.MemberAPIs()}
}

// follows reports whether the present log may be the one that the snapshot m was taken from. The log of a new cluster
// is not: it lacks what the former cluster did after the snapshot. It may have the same numbers if it was set up in the
// same way, but then it has named lives that m should have and does not.
func (p *Present) follows(m *Machine) bool {
	for _, l := range p.Lives {
		if max(l.Version, p.ReconcileVersion) <= m.version && l.Name != "" && !slices.Contains(lifeNames(m.lives), l.Name) {
			return false
		}
	}
	return p.Version >= m.version && p.Ceiling >= m.ceiling && p.LastToken >= m.lastToken && p.Order >= m.order
}

// canReport reports whether the nodes of the fleet can tell what another log has used them for. Those that were empty
// when this log named their lives have forgotten that.
func (p *Present) canReport() bool {
	named, kept := 0, 0
	for _, l := range p.Lives {
		if l.Name != "" {
			named++
			if l.Version == 0 {
				kept++
			}
		}
	}
	return named == 0 || kept > len(p.Lives)/2
}

// StartOver changes the state of a snapshot so that it has no leases and repeats nothing that was given out before it
// replaces p at this Unix time. Its next token is more than FloorStep above all tokens that either mode can have
// granted, in the snapshot or in p, and no incarnation or version is used again. No lock in efficiency mode is granted
// until the log is reconciled with the Redis nodes. The result has the new floor.
//
// The Redis fleet stays that of p: its nodes are not rolled back with the log. The log of a new cluster takes the fleet
// from its configuration, and does not know what that fleet, or the one of the snapshot, has granted. The API addresses
// of the members stay, too: those of the snapshot may belong to another cluster that uses the same IDs.
func (m *Machine) StartOver(p Present, unix int64) Result {
	mark := &MarkRestored{Version: max(p.Version, VersionAt(unix)), Ceiling: max(p.Ceiling, p.LastToken),
		Fleet: p.Fleet, FleetSet: p.FleetSet, FleetUnused: p.FleetSet && p.Unused()}
	foreign, same := !p.follows(m), m.fleet.Equal(p.Fleet)
	if foreign && p.FleetSet && !(same && p.canReport()) {
		mark.Ceiling = pastForgottenFleet(max(mark.Ceiling, m.ceiling, m.lastToken))
	}
	switch {
	case same && foreign && !p.Fleet.IsZero(): // as if its configuration did not name the fleet
		m.clearNextFleet() // p is not changing its fleet
		mark.Fleet, mark.FleetSet, mark.FleetUnused = engine.Fleet{}, false, false
	case same && (m.ready || m.restored): // its nodes can report
		mark.FleetUnused = false
	}
	clear(m.memberAPI)
	maps.Copy(m.memberAPI, p.memberAPI)
	m.Apply(&EndSessions{Above: p.Order})
	m.Apply(mark)
	result, _ := m.Apply(&RaiseFloor{By: fencing.FloorStep})
	return result
}
