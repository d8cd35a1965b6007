package machine

import (
	"slices"
	"sort"
)

// span is the range of numbers from lo to hi, inclusive.
type span struct{ lo, hi uint64 }

// spans is a set of numbers, stored as spans in ascending order that neither touch nor
// overlap. The attempts of a session have consecutive numbers, so a session with millions
// of ended attempts has about as many spans as live attempts.
type spans []span

// has reports whether n is in the set.
func (s spans) has(n uint64) bool {
	i := s.after(n)
	return i > 0 && s[i-1].hi >= n
}

// add adds n to the set.
func (s *spans) add(n uint64) {
	i := s.after(n)
	old := *s
	if i > 0 && old[i-1].hi >= n {
		return
	}
	joinsLeft := i > 0 && old[i-1].hi == n-1
	joinsRight := i < len(old) && old[i].lo == n+1
	switch {
	case joinsLeft && joinsRight:
		old[i-1].hi = old[i].hi
		*s = slices.Delete(old, i, i+1)
	case joinsLeft:
		old[i-1].hi = n
	case joinsRight:
		old[i].lo = n
	default:
		*s = slices.Insert(old, i, span{n, n})
	}
}

// after returns the index of the first span that begins above n.
func (s spans) after(n uint64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].lo > n })
}
