package quorum

import (
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
)

// State is what an attempt knows of its vote on one node.
type State uint8

const (
	// Pending: an answer may still come.
	Pending State = iota
	// Accepted: the node has accepted Vote.Token for this attempt.
	Accepted
	// Held: someone else has the lock on this node.
	Held
	// Refused: the node does not vote for this attempt: it is empty, belongs to
	// another fleet, has a newer version, or has lost the lock.
	Refused
	// Failed: no answer will come. The node may have accepted.
	Failed
)

// Vote is the answer of one node to one attempt.
type Vote struct {
	State State
	Token fencing.Token // for Accepted: the last value that was accepted
	Left  time.Duration // for Held: the time that the holder has left
	// Holder is, for Held, the session that holds the lock.
	Holder string
	// Raising: a raise was sent, and its answer may still come.
	Raising bool
}

// Size is how many of n nodes make a majority.
func Size(n int) int { return n/2 + 1 }

// Outcome is the state of an attempt.
type Outcome uint8

const (
	// Wait for more answers.
	Wait Outcome = iota
	// Granted: a majority has accepted Decision.Token.
	Granted
	// Differ: a majority accepts the attempt with different values, and the
	// answers to come cannot make them agree. Raise every node that may have the
	// lock for this attempt to Decision.Token.
	Differ
	// Lost: no majority can come together any more.
	Lost
)

// Decision is what to do next.
type Decision struct {
	Outcome Outcome
	Token   fencing.Token
}

// Decide looks at the votes of all nodes. proposed is the value of the last
// Raise, or None. It decides as soon as the answers allow it, without waiting
// for those that cannot change anything.
func Decide(votes []Vote, proposed fencing.Token) Decision {
	q := Size(len(votes))
	accepted, possible := 0, 0
	top := fencing.None
	for _, v := range votes {
		switch v.State {
		case Accepted:
			accepted++
			top = max(top, v.Token)
			// Raises under way move the nodes past any smaller value.
			if v.Token >= proposed && agreeing(votes, v.Token) >= q {
				return Decision{Outcome: Granted, Token: v.Token}
			}
		case Pending:
			possible++
		}
	}
	switch {
	case accepted+possible < q:
		return Decision{Outcome: Lost}
	case accepted >= q && top > proposed && agreeing(votes, top)+possible < q:
		return Decision{Outcome: Differ, Token: top}
	case accepted >= q && possible == 0 && !raising(votes):
		return Decision{Outcome: Lost} // the nodes that were to be raised did not follow
	}
	return Decision{Outcome: Wait}
}

// agreeing counts the nodes that have accepted a value.
func agreeing(votes []Vote, token fencing.Token) int {
	n := 0
	for _, v := range votes {
		if v.State == Accepted && v.Token == token {
			n++
		}
	}
	return n
}

func raising(votes []Vote) bool {
	return slices.ContainsFunc(votes, func(v Vote) bool { return v.State == Accepted && v.Raising })
}

// HeldByOther reports whether one other session has the lock on a majority of
// the nodes. If not, the votes are split or nodes are unreachable, and no release
// may ever wake a waiter: it must try again by itself.
func HeldByOther(votes []Vote) bool {
	for _, v := range votes {
		with := 0
		for _, other := range votes {
			if other.State == Held && v.State == Held && other.Holder == v.Holder {
				with++
			}
		}
		if with >= Size(len(votes)) {
			return true
		}
	}
	return false
}

// FreeAfter returns when a majority of the nodes will be free, as far as the
// votes tell, if nothing is renewed or released.
func FreeAfter(votes []Vote) time.Duration {
	var left []time.Duration
	for _, v := range votes {
		if v.State == Held {
			left = append(left, v.Left)
		} else {
			left = append(left, 0)
		}
	}
	slices.Sort(left)
	return left[Size(len(votes))-1]
}
