package leases

import (
	"slices"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// maxKnown bounds the leases that a stream remembers. Others are looked up on the Redis
// nodes at each renewal.
const maxKnown = 1 << 16

// knownLeases has the leases in efficiency mode that this member knows were granted: it
// granted them on this stream, or has found them on the Redis nodes.
type knownLeases struct {
	mu     sync.Mutex
	byName map[string]knownLease
}

// knownLease has the parts of a lease that a renewal must not change.
type knownLease struct {
	token fencing.Token
	locks []fencing.Resource
}

// has reports whether a lease is known with this token and these locks.
func (k *knownLeases) has(held *engine.Held) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.byName[held.Name]
	return ok && l.token == held.Token && sameLocks(l.locks, held.Resources)
}

// add remembers a lease. If there are too many, it replaces an arbitrary one.
func (k *knownLeases) add(held *engine.Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byName == nil {
		k.byName = map[string]knownLease{}
	}
	if len(k.byName) >= maxKnown {
		for name := range k.byName {
			delete(k.byName, name)
			break
		}
	}
	k.byName[held.Name] = knownLease{held.Token, held.Resources}
}

// remove forgets a lease that has ended.
func (k *knownLeases) remove(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byName, name)
}

// sameLocks reports whether two sets have the same locks, in any order.
func sameLocks(a, b []fencing.Resource) bool {
	return slices.Equal(a, b) || slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
