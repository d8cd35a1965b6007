package watch

import (
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// maxReasons is the number of reasons that a member keeps, the latest ones.
const maxReasons = 8192

// unknownReason is the event type of a lease whose reason is not known any more.
const unknownReason = "ended"

// reasons remembers why recent leases in correctness mode ended. The Redis nodes
// remember it for leases in efficiency mode.
type reasons struct {
	mu    sync.Mutex
	known map[attempt]string
	ring  []attempt
	next  int
}

// attempt is the identity of an acquisition attempt.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

func newReasons() *reasons {
	return &reasons{known: map[attempt]string{}, ring: make([]attempt, maxReasons)}
}

func (r *reasons) add(key attempt, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.known[key]; !ok {
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % len(r.ring)
	}
	r.known[key] = reason
}

// of returns why a holder's lease ended.
func (r *reasons) of(p *engine.Party) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason, ok := r.known[attempt{p.Session, p.Nonce}]; ok {
		return reason
	}
	return unknownReason
}
