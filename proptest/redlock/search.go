package redlock

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"unsafe"
)

// Search visits every State within its Bounds once, breadth-first, so that the first
// violation has a shortest trace.
type Search struct {
	Bounds
	script
	violation error // of the event being applied

	Visited int // states, or steps of walks
	// Most limits the number of visited states; 0 is no limit.
	Most int

	seed maphash.Seed
	// seen has the fingerprints of all states. With thirty million of them, the probability of a collision is about 1 in
	// 40,000.
	seen    map[uint64]bool
	size    int // of a stored state
	classes [maxNodes]uint8
	steps   []step // how each state was reached, in order
	named   State  // buffer of key
	then    State  // buffer of visit
}

// step is the step that led to a state.
type step struct {
	from  uint32
	event event
}

// errMost ends a search at its limit.
var errMost = errors.New("the search has reached its limit of states")

// NewSearch returns a Search within bounds.
func NewSearch(b Bounds) *Search {
	if b.Fleets == nil {
		b.Fleets = []uint8{1<<b.Nodes - 1}
	}
	s := &Search{Bounds: b, seed: maphash.MakeSeed(), seen: map[uint64]bool{}}
	var w State
	s.size = int(unsafe.Offsetof(w.Nodes)) + b.Nodes*int(unsafe.Sizeof(w.Nodes[0]))
	for n := range b.Nodes {
		for i, members := range b.Fleets {
			s.classes[n] |= members >> n & 1 << i
		}
	}
	return s
}

// Run visits all states and returns the first violation with its trace.
func (s *Search) Run() error {
	first := s.first()
	s.seen[s.key(&first)] = true
	s.steps, s.Visited = []step{{}}, 1
	level := append([]byte(nil), raw(&first)[:s.size]...)
	var w State
	for number := uint32(0); len(level) > 0; {
		var next []byte
		for at := 0; at < len(level); at += s.size {
			copy(raw(&w)[:s.size], level[at:])
			var failed error
			s.events(&w, func(e event) {
				if failed == nil {
					next, failed = s.visit(&w, e, number, next)
				}
			})
			if failed != nil {
				return failed
			}
			number++
		}
		level = next
	}
	return nil
}

// visit executes an event and adds a new state to the next level.
func (s *Search) visit(w *State, e event, number uint32, next []byte) ([]byte, error) {
	copy(raw(&s.then)[:s.size], raw(w)[:s.size])
	if err := s.apply(&s.then, e); err != nil {
		return next, s.traced(err, number, e)
	}
	if bytes.Equal(raw(&s.then)[:s.size], raw(w)[:s.size]) {
		return next, nil
	}
	key := s.key(&s.then)
	if s.seen[key] {
		return next, nil
	}
	s.seen[key] = true
	if s.Visited++; s.Visited == s.Most {
		return next, errMost
	}
	s.steps = append(s.steps, step{number, e})
	return append(next, raw(&s.then)[:s.size]...), nil
}

// traced adds the trace of a violation.
func (s *Search) traced(err error, number uint32, last event) error {
	events := []event{last}
	for ; number != 0; number = s.steps[number].from {
		events = append([]event{s.steps[number].event}, events...)
	}
	return s.failure(err, append(slices.Clone(s.Prefix), events...))
}

// first returns the state after the prefix.
func (s *Search) first() State {
	w := s.First()
	for _, e := range s.Prefix {
		was := w
		if err := s.apply(&w, e); w == was || err != nil {
			panic(fmt.Sprintf("%s: event %v of the prefix is impossible: %v", s.Name, e, err))
		}
	}
	return w
}

// Walk takes random steps, which reach deeper states than Run.
func (s *Search) Walk(r *rand.Rand, steps int) error {
	w, happened := s.first(), slices.Clone(s.Prefix)
	for range steps {
		var possible []event
		s.events(&w, func(e event) { possible = append(possible, e) })
		for {
			if len(possible) == 0 {
				return nil
			}
			i := r.IntN(len(possible))
			e := possible[i]
			then := w
			if err := s.apply(&then, e); err != nil {
				return s.failure(err, append(happened, e))
			}
			if then != w {
				w, happened = then, append(happened, e)
				break
			}
			possible[i] = possible[len(possible)-1]
			possible = possible[:len(possible)-1]
		}
		s.Visited++
	}
	return nil
}

// key returns a fingerprint that is equal for states that differ only in the names of
// attempts, and mostly for states that differ only in the names of nodes.
func (s *Search) key(w *State) uint64 {
	best := ^uint64(0)
	copy(raw(&s.named)[:s.size], raw(w)[:s.size])
	names := max(1, s.Attempts)
	if s.Maintenance {
		names = 1 // the first attempt is special
	}
	for i := range names {
		if i > 0 {
			s.named.rotate(s.Attempts, s.Nodes)
		}
		s.sort(&s.named)
		best = min(best, maphash.Bytes(s.seed, raw(&s.named)[:s.size]))
	}
	return best
}

// sort sorts nodes of the same fleets.
func (s *Search) sort(w *State) {
	for i := 1; i < s.Nodes; i++ {
		for j := i; j > 0 && s.classes[j] == s.classes[j-1] && bytes.Compare(raw(&w.Nodes[j]), raw(&w.Nodes[j-1])) < 0; j-- {
			w.Nodes[j], w.Nodes[j-1] = w.Nodes[j-1], w.Nodes[j]
			if s.Standalone {
				w.swapMasks(j, s.Nodes)
			}
		}
	}
}

// swapMasks swaps nodes j and j-1 in the bit masks of all nodes.
func (w *State) swapMasks(j, nodes int) {
	swap := func(mask uint8) uint8 { return mask&^(3<<(j-1)) | mask>>j&1<<(j-1) | mask>>(j-1)&1<<j }
	for n := range nodes {
		for m := range w.Nodes[n].Count {
			at := &w.Nodes[n].Servers[m]
			at.Reporters, at.Reservers = swap(at.Reporters), swap(at.Reservers)
		}
	}
}

// rotate renames each attempt to the next.
func (w *State) rotate(attempts, nodes int) {
	rotate(w.Attempts[:attempts])
	for i := range nodes {
		n := &w.Nodes[i]
		rotate(n.Exchanges[:attempts])
		for m := range n.Count {
			at := &n.Servers[m]
			if at.Lock != 0 {
				at.Lock = at.Lock%uint8(attempts) + 1
			}
			if at.Released != 0 {
				at.Released = at.Released%uint8(attempts) + 1
			}
			at.Stale = at.Stale<<1&(1<<attempts-1) | at.Stale>>(attempts-1)
		}
	}
}

func rotate[T any](all []T) {
	last := all[len(all)-1]
	copy(all[1:], all)
	all[0] = last
}

// raw returns the memory of a value without pointers and padding.
func raw[T node | State](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
