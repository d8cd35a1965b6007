package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// visitsPerEnd is the number of locks that EndRequests visits for each request that it may end.
const visitsPerEnd = 20

// startSweep makes EndRequests visit the locks of a prefix that migrates to efficiency mode, if it may
// have to end something.
func (m *Model) startSweep(prefix string) {
	if m.mayEnd(prefix) {
		m.sweeps[prefix] = ""
	}
}

// mayEnd reports whether a sweep may have to end something: somebody waits for any lock, or the
// migration breaks its holders.
func (m *Model) mayEnd(prefix string) bool {
	waits := slices.ContainsFunc(m.requests, func(a *record) bool { return a.state == waiting })
	r := m.rules[prefix]
	return waits || r != nil && r.migration != nil && r.migration.now
}

// sweepSome visits the locks of the prefixes in m.sweeps by name, those after the last one that
// was visited. If a lock is migrating, its waiters are cancelled, and if the migration does not wait, its
// grants are revoked and its lock-delay ends, without a new one. If it is not, its waiters may be granted. All this
// is for at most limit locks, but one request may always end if limit is not 0. A prefix is left
// at the first lock of which something does not fit. It reports whether any prefix is left.
func (m *Model) sweepSome(limit int) (left bool) {
	var freed []fencing.Resource
	fits := func(locks int) bool { return len(freed) < limit && (len(freed) == 0 || len(freed)+locks <= limit) }
	visits, names := limit*visitsPerEnd, m.inUse()
	for _, prefix := range slices.Sorted(maps.Keys(m.sweeps)) {
		complete := true
		for _, name := range names {
			if !strings.HasPrefix(string(name), prefix) || name <= m.sweeps[prefix] {
				continue
			}
			if !m.mayEnd(prefix) {
				break
			}
			if visits == 0 || !m.sweepLock(name, &freed, fits) {
				complete = false
				break
			}
			visits--
			m.sweeps[prefix] = name
		}
		if complete {
			delete(m.sweeps, prefix)
		}
	}
	m.grantWaiters(freed...)
	return len(m.sweeps) > 0
}

// sweepLock visits one lock for sweepSome. It reports whether everything was done.
func (m *Model) sweepLock(name fencing.Resource, freed *[]fencing.Resource, fits func(int) bool) (done bool) {
	waiters := m.Inspect(name).Waiters
	if !m.migrating(name) {
		if len(waiters) > 0 && fits(1) {
			*freed = append(*freed, name)
			return true
		}
		return len(waiters) == 0
	}
	for _, a := range m.requests {
		if a.state != waiting || !slices.Contains(a.request.Resources, name) {
			continue
		}
		if !fits(len(a.request.Resources)) {
			break
		}
		m.emit(WasCancelled, a)
		a.state = over // but not ended: the client may repeat it
		*freed = append(*freed, a.request.Resources...)
	}
	if !m.ruleOf(name).migration.now {
		return len(m.Inspect(name).Waiters) == 0
	}
	for _, holder := range m.Inspect(name).Holders {
		a := m.holder(holder.Token)
		if !fits(len(a.request.Resources)) {
			break
		}
		m.emit(WasBroken, a)
		a.state = over
		m.ended[Attempt{a.session, a.request.Nonce}] = true
		*freed = append(*freed, a.request.Resources...)
	}
	if m.delays[name] != 0 && fits(1) {
		delete(m.delays, name)
		m.events = append(m.events, Event{Kind: WasOpened, Resources: []fencing.Resource{name}, Mode: m.modeOf(name)})
		*freed = append(*freed, name)
	}
	return !slices.Contains(m.inUse(), name)
}

// unswept reports whether a sweep has not visited a lock yet.
func (m *Model) unswept(name fencing.Resource) bool {
	for prefix, last := range m.sweeps {
		if strings.HasPrefix(string(name), prefix) && name > last {
			return true
		}
	}
	return false
}
