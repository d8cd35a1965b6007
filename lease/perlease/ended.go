package perlease

import (
	"maps"
	"slices"

	"github.com/leased-project/leased/lease/engine"
)

// maxEnded bounds the ended attempts that a session remembers one by one.
const maxEnded = 4096

// endedAttempts is the set of attempts that were released. A late copy of an acquire is
// refused if its attempt is in the set. Nonces count upwards, so that the set can
// forget single low ones and refuse all of them: its size does not depend on how long
// the session lives.
type endedAttempts struct {
	low    engine.Nonce // attempts up to this one have ended, unless they are live
	single map[engine.Nonce]bool
}

// has reports whether an attempt that is not live has ended.
func (e *endedAttempts) has(nonce engine.Nonce) bool { return nonce <= e.low || e.single[nonce] }

// add adds an attempt.
func (e *endedAttempts) add(nonce engine.Nonce) {
	if nonce <= e.low {
		return
	}
	if e.single == nil {
		e.single = map[engine.Nonce]bool{}
	}
	e.single[nonce] = true
	if len(e.single) <= maxEnded {
		return
	}
	lowest := slices.Sorted(maps.Keys(e.single))[:maxEnded/2]
	for _, n := range lowest {
		delete(e.single, n)
	}
	e.low = lowest[len(lowest)-1]
}
