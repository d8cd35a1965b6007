package quorum

import "math/bits"

// Nodes is a set of nodes, by their numbers.
type Nodes uint64

// All returns the set of n nodes.
func All(n int) Nodes { return 1<<n - 1 }

// Has reports whether a node is in the set.
func (s Nodes) Has(node int) bool { return s>>node&1 == 1 }

// Count returns the number of nodes.
func (s Nodes) Count() int { return bits.OnesCount64(uint64(s)) }

// Each yields the nodes in order.
func (s Nodes) Each(yield func(node int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros64(uint64(s))) {
			return
		}
	}
}
