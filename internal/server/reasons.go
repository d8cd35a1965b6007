package server

import (
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// keptReasons is how many of the last reasons are kept.
const keptReasons = 8192

// reasons remembers for a while why leases ended, for those who watch.
type reasons struct {
	mu    sync.Mutex
	known map[reasonKey]string
	ring  []reasonKey
	next  int
}

// reasonKey is an attempt, or a token of a lock.
type reasonKey struct {
	session  lease.SessionID
	nonce    lease.Nonce
	resource fencing.Resource
	token    fencing.Token
}

func newReasons() *reasons {
	return &reasons{known: map[reasonKey]string{}, ring: make([]reasonKey, keptReasons)}
}

func (r *reasons) note(key reasonKey, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.known[key]; !ok {
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % len(r.ring)
	}
	r.known[key] = why
}

// forget takes back what was noted for something that did not happen.
func (r *reasons) forget(key reasonKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, key)
}

// why tells how a holder's lease has ended. Redis tells nobody that one has
// expired, so in the efficiency mode that is what it was if nothing else is
// known; else it is "ended".
func (r *reasons) why(resource fencing.Resource, mode lease.Mode, p *lease.Party) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []reasonKey{{resource: resource, token: p.Token}, {session: p.Session, nonce: p.Nonce}} {
		if why, ok := r.known[key]; ok {
			return why
		}
	}
	if mode == lease.Efficiency {
		return "expired"
	}
	return "ended"
}
