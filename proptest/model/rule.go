package model

import (
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// share reports whether two requests want one of the same resources.
func share(a, b engine.Request) bool {
	return slices.ContainsFunc(a.Resources, func(name fencing.Resource) bool { return slices.Contains(b.Resources, name) })
}

// sideBySide reports whether two requests for one resource may both hold it:
// two readers may, and two permits if there are slots for both.
func sideBySide(a, b engine.Request) bool {
	bothRead := a.Kind == engine.Shared && b.Kind == engine.Shared
	bothPermits := a.Kind == engine.Permit && b.Kind == engine.Permit
	return bothRead || bothPermits
}

// mayPass reports whether a later request may be granted while an earlier one
// for one of the same resources still waits: only a reader behind a reader.
func mayPass(later, earlier engine.Request) bool {
	return later.Kind == engine.Shared && earlier.Kind == engine.Shared
}

// mayHold is the grant rule: none of the resources has a conflicting holder, an
// earlier conflicting waiter, or a lock-delay; and a permit needs a slot.
func (m *Model) mayHold(a *ask) bool {
	if m.lastToken == fencing.MaxToken {
		return false
	}
	for _, name := range a.request.Resources {
		if m.delays[name] != 0 {
			return false
		}
	}
	earlier := true // than a: the list is in the order of the requests
	for _, b := range m.asks {
		switch {
		case b == a:
			earlier = false
		case b.state == over || !share(a.request, b.request):
		case b.state == holding && !sideBySide(a.request, b.request):
			return false
		case b.state == waiting && earlier && !mayPass(a.request, b.request):
			return false
		}
	}
	return a.request.Kind != engine.Permit || m.freeSlot(a.request) != 0
}

// freeSlot is the lowest slot from 1 to Permits that nobody holds, or 0.
func (m *Model) freeSlot(request engine.Request) int {
	for slot := 1; slot <= request.Permits; slot++ {
		taken := slices.ContainsFunc(m.asks, func(b *ask) bool {
			return b.state == holding && b.slot == slot && share(b.request, request)
		})
		if !taken {
			return slot
		}
	}
	return 0
}

// grantWaiters grants everyone who may be granted, one after the other. The names are
// those that were just freed: they only say who comes first. Tokens of
// different resources are not comparable, so no promise rests on that order,
// but replicas must agree on it.
func (m *Model) grantWaiters(freed ...fencing.Resource) {
	slices.Sort(freed)
	for {
		var next *ask
		best := 0
		for _, a := range m.asks {
			if a.state != waiting || !m.mayHold(a) {
				continue
			}
			rank := slices.IndexFunc(freed, func(name fencing.Resource) bool { return slices.Contains(a.request.Resources, name) })
			if rank < 0 {
				rank = len(freed)
			}
			if next == nil || rank < best {
				next, best = a, rank
			}
		}
		if next == nil {
			return
		}
		m.grant(next)
	}
}

func (m *Model) grant(a *ask) {
	if a.request.Kind == engine.Permit {
		a.slot = m.freeSlot(a.request)
	}
	m.lastToken++
	a.token = m.lastToken
	a.state = holding
	m.tell(WasGranted, a)
}
