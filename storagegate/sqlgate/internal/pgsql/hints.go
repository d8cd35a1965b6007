package pgsql

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
)

// Hints remembers for some resources that a token was admitted, so that later
// writes of a holder can start with the cheaper statement. A hint can be missing
// or wrong; only the speed depends on it.
type Hints struct {
	slots [4096]atomic.Uint64
}

var seed = maphash.MakeSeed()

func sum(resource fencing.Resource, token fencing.Token) uint64 {
	return maphash.String(seed, string(resource)) ^ uint64(token)*0x9e3779b97f4a7c15
}

// Likely reports whether the mark of the resource is probably the token.
func (h *Hints) Likely(resource fencing.Resource, token fencing.Token) bool {
	s := sum(resource, token)
	return h.slots[s%uint64(len(h.slots))].Load() == s
}

// Note remembers that the token was admitted.
func (h *Hints) Note(resource fencing.Resource, token fencing.Token) {
	s := sum(resource, token)
	h.slots[s%uint64(len(h.slots))].Store(s)
}
