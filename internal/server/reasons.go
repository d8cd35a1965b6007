package server

import (
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// keptReasons is how many of the latest reasons are kept.
const keptReasons = 8192

// reasons remembers for a while why leases in correctness mode ended, for
// watchers. Redis itself knows it of leases in efficiency mode.
type reasons struct {
	mu    sync.Mutex
	known map[attempt]string
	ring  []attempt
	next  int
}

// attempt is the identity of an acquire.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

func newReasons() *reasons {
	return &reasons{known: map[attempt]string{}, ring: make([]attempt, keptReasons)}
}

func (r *reasons) note(key attempt, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.known[key]; !ok {
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % len(r.ring)
	}
	r.known[key] = reason
}

// reason returns how a holder's lease ended, "ended" if it is not known any more.
func (r *reasons) reason(p *engine.Party) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason, ok := r.known[attempt{p.Session, p.Nonce}]; ok {
		return reason
	}
	return "ended"
}
