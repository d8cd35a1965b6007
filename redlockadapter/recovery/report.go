package recovery

import (
	"time"

	"github.com/leased-project/leased/fencing"
)

// Jump is how far a recovery moves tokens up where something may have been
// forgotten: more than can have been granted meanwhile.
const Jump fencing.Token = 1 << 32

// State is what a node stores about itself.
type State struct {
	// Version is the newest version of the policies that the node has seen; it
	// refuses calls under older ones.
	Version uint64
	// Fleet is the fingerprint of the fleet that the node votes in.
	Fleet string
	// Member is the address by which the fleet knows the node.
	Member string
	// Max is the largest token that the node ever accepted. Every token that it
	// accepts is above Floor and at most Ceiling.
	Max, Floor, Ceiling fencing.Token
}

// Report is what a node says of itself. The zero Report is no answer.
type Report struct {
	// Reached: the node answered.
	Reached bool
	// Live is the node's state; nil if it is empty.
	Live *State
	// Former is what a former life of the node left behind, of any age: evidence
	// of how far tokens had come, never a vote. Nil if there is none.
	Former *State
}

// in reports whether the node votes in a fleet.
func (r Report) in(fleet string) bool { return r.Reached && r.Live != nil && r.Live.Fleet == fleet }

// quorum is the size of a majority of n nodes.
func quorum(n int) int { return n/2 + 1 }

// Range makes an empty node a voter: it may accept the tokens above Floor, up to Ceiling.
type Range struct {
	// Join is the join nonce that the range is assigned to.
	Join           string
	Version        uint64
	Floor, Ceiling fencing.Token
	// Quarantine is the time after its first join during which the node must not vote.
	Quarantine time.Duration
}
