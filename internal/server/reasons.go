package server

import (
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// keptReasons is how many of the last reasons are kept.
const keptReasons = 8192

// reasons remembers for a while why leases ended, for those who watch. All calls
// go through the leader, so what it has not been asked for was an expiry.
type reasons struct {
	mu    sync.Mutex
	known map[reasonKey]string
	ring  []reasonKey
	next  int
}

// reasonKey is an attempt, a whole session (nonce 0), or a token of a lock.
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

// why tells how a holder's lease has ended.
func (r *reasons) why(resource fencing.Resource, p *lease.Party) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []reasonKey{{resource: resource, token: p.Token}, {session: p.Session, nonce: p.Nonce}, {session: p.Session}} {
		if why, ok := r.known[key]; ok {
			return why
		}
	}
	return "expired"
}
