package recovery

import (
	"time"

	"github.com/leased-project/leased/fencing"
)

// Jump is added to tokens in a recovery, to cover the grants that may have been forgotten.
const Jump fencing.Token = 1 << 32

// VoteJump is added to tokens in the recovery of a single node without a service, to cover the votes of the
// node that no other node knows. They were not enough for a grant, but one of them may still be part of a
// late one. A fleet of five nodes that are restarted once a week uses up 2^40 tokens in 63 years.
const VoteJump fencing.Token = 1 << 26

// State is the state of a node.
type State struct {
	// Version is the newest version of the policies that the node has seen. It refuses
	// older ones.
	Version uint64
	// Fleet is the fingerprint of the fleet that the node votes in.
	Fleet string
	// Member is the node's address in the fleet.
	Member string
	// Max is the largest token that the node has accepted, at least Floor. Every token
	// that it accepts is above Floor and at most Ceiling.
	Max, Floor, Ceiling fencing.Token
	// Join is the join nonce with which the node was initialised.
	Join string
	// Successor names the fleet that replaces the node's fleet; empty while there is
	// none. A retired node says nothing about the tokens of its successor.
	Successor string
}

// Report is the answer of a node. The zero Report means that it did not answer.
type Report struct {
	// Reached: the node answered.
	Reached bool
	// Server identifies the run of the server that answered.
	Server string
	// Live is the node's state; nil if it is empty.
	Live *State
	// FormerServer is the latest run that voted on the data of this server, if it is not
	// this one: it has ended. Empty if there is none.
	FormerServer string
	// Former is the state of the former run, of any age: a lower bound of the granted
	// tokens, never a vote. Nil if there is none.
	Former *State
}

// Node is a node of a fleet, as the process knows it that recovers its nodes.
type Node struct {
	Report
	// Joining is the join nonce on an empty node.
	Joining string
	// Quarantine is the minimum time until that node may vote.
	Quarantine time.Duration
	// Joined is the time since the join nonce was put or repeated.
	Joined time.Duration
	// Saved: this run of the server is known to have written SavedFloor to disk. Without a service only.
	Saved      bool
	SavedFloor fencing.Token
	// MayNotSave: the server does not let this process save. Without a service only.
	MayNotSave bool
}

// in reports whether the node votes in a fleet.
func (r Report) in(fleet string) bool { return r.Reached && r.Live != nil && r.Live.Fleet == fleet }

// states returns the state and the former state of a node that answered.
func (r Report) states() (all []*State) {
	for _, s := range []*State{r.Live, r.Former} {
		if r.Reached && s != nil {
			all = append(all, s)
		}
	}
	return all
}

// quorum returns the size of a quorum of n nodes.
func quorum(n int) int { return n/2 + 1 }

// Range makes an empty node a voter: it may accept the tokens above Floor, up to Ceiling.
type Range struct {
	// Join is the join nonce that the range is assigned to.
	Join           string
	Version        uint64
	Floor, Ceiling fencing.Token
	// Quarantine is the time for which the node must have been joined before it votes.
	Quarantine time.Duration
	// Successor names the fleet that replaces the node's fleet; empty while there is none.
	Successor string
}

// QuarantineLeft returns the time until a node with a join nonce may vote. Its quarantine began
// waited ago, and the last join was joined ago. If that is gap or more, the next join
// starts the quarantine again: the address may have led to another server, which may have voted.
func QuarantineLeft(quarantine, waited, joined, gap time.Duration) time.Duration {
	if joined >= gap {
		return quarantine
	}
	return max(0, quarantine-waited)
}
