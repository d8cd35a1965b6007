package model

import (
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// overlap reports whether two requests have a resource in common.
func overlap(a, b engine.Request) bool {
	return slices.ContainsFunc(a.Resources, func(name fencing.Resource) bool { return slices.Contains(b.Resources, name) })
}

// compatible reports whether two requests may hold one resource at the same time: two
// readers may, and two permits if there are slots for both.
func compatible(a, b engine.Request) bool {
	bothRead := a.Kind == engine.Shared && b.Kind == engine.Shared
	bothPermits := a.Kind == engine.Permit && b.Kind == engine.Permit
	return bothRead || bothPermits
}

// mayOvertake reports whether a later request may be granted while an earlier request
// for a common resource still waits: only a reader behind a reader.
func mayOvertake(later, earlier engine.Request) bool {
	return later.Kind == engine.Shared && earlier.Kind == engine.Shared
}

// mayHold is the grant rule: no resource has a conflicting holder, an earlier
// conflicting waiter or a lock-delay, none is migrating, and a permit has a free slot.
func (m *Model) mayHold(a *record) bool {
	if m.LastToken == fencing.MaxToken || !m.Open(a.session) {
		return false
	}
	for _, name := range a.request.Resources {
		if m.delays[name] != 0 || m.migrating(name) {
			return false
		}
	}
	earlier := true // than a: the list has the order of the requests
	for _, b := range m.requests {
		switch {
		case b == a:
			earlier = false
		case b.state == over || !overlap(a.request, b.request):
		case b.state == holding && !compatible(a.request, b.request):
			return false
		case b.state == waiting && earlier && !mayOvertake(a.request, b.request):
			return false
		}
	}
	return a.request.Kind != engine.Permit || m.freeSlot(a.request) != 0
}

// freeSlot returns the lowest free slot from 1 to Permits, or 0.
func (m *Model) freeSlot(request engine.Request) int {
	for slot := 1; slot <= request.Permits; slot++ {
		taken := slices.ContainsFunc(m.requests, func(b *record) bool {
			return b.state == holding && b.slot == slot && overlap(b.request, request)
		})
		if !taken {
			return slot
		}
	}
	return 0
}

// grantWaiters grants all waiters that may be granted, one after the other. The freed
// names determine the order. Tokens of different resources are not comparable, so no
// guarantee depends on that order, but replicas must agree on it. A waiter for other names that a
// sweep has not visited yet, because their migration was aborted before, is granted when the sweep
// comes by.
func (m *Model) grantWaiters(freed ...fencing.Resource) {
	slices.Sort(freed)
	for {
		var next *record
		best := 0
		for _, a := range m.requests {
			if a.state != waiting || !m.mayHold(a) {
				continue
			}
			rank := slices.IndexFunc(freed, func(name fencing.Resource) bool {
				return slices.Contains(a.request.Resources, name)
			})
			if rank < 0 {
				if slices.ContainsFunc(a.request.Resources, m.unswept) {
					continue
				}
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

func (m *Model) grant(a *record) {
	if a.request.Kind == engine.Permit {
		a.slot = m.freeSlot(a.request)
	}
	m.LastToken++
	a.token = m.LastToken
	a.state = holding
	m.emit(WasGranted, a)
}
