package quorum

import (
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
)

// State is the state of a vote.
type State uint8

const (
	// Pending: an answer may still come.
	Pending State = iota
	// Accepted: the node has accepted Vote.Token for this attempt.
	Accepted
	// Held: another attempt holds the lock on this node.
	Held
	// Refused: the node does not vote for this attempt, for example because it is
	// empty, votes in another fleet, or has seen a newer version.
	Refused
	// Failed: no answer will come. The node may have accepted.
	Failed
)

// Vote is the answer of one node to one attempt.
type Vote struct {
	State State
	Token fencing.Token // for Accepted: the token that was accepted last
	Left  time.Duration // for Held: the time until the holder's lease expires
	// Holder is, for Held, the session that holds the lock.
	Holder string
	// Raising: a raise was sent, and is not answered yet.
	Raising bool
}

// Size returns the size of a quorum of n nodes.
func Size(n int) int { return n/2 + 1 }

// Outcome is the state of an attempt.
type Outcome uint8

const (
	// Wait for more answers.
	Wait Outcome = iota
	// Granted: a quorum has accepted Decision.Token.
	Granted
	// Differ: a quorum has accepted the attempt, with different tokens, and pending
	// answers cannot change that. Raise every node that may hold the lock for this
	// attempt to Decision.Token.
	Differ
	// Lost: the attempt cannot get a quorum any more.
	Lost
)

// Decision is the result of Decide.
type Decision struct {
	Outcome Outcome
	Token   fencing.Token
}

// Decide returns the outcome of an attempt with these votes. proposed is the token of the
// last raise, or None. It does not wait for answers that cannot change the outcome.
func Decide(votes []Vote, proposed fencing.Token) Decision {
	q := Size(len(votes))
	accepted, possible := 0, 0
	top := fencing.None
	for _, v := range votes {
		switch v.State {
		case Accepted:
			accepted++
			top = max(top, v.Token)
			// Raises in flight move the nodes past any smaller token.
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
		return Decision{Outcome: Lost} // nodes refused the raise
	}
	return Decision{Outcome: Wait}
}

// agreeing counts the nodes that have accepted this token.
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

// Usable reports whether a process can begin to use nodes, from the errors of its first calls to each. A server that
// does not answer, or must not be a node, is a missing vote, not a reason to do without the others.
func Usable(errs []error) bool {
	answered := 0
	for _, err := range errs {
		if err == nil {
			answered++
		}
	}
	return answered >= Size(len(errs))
}

// HeldByOther reports whether one other session holds the lock on a quorum. If not, the
// votes are split or nodes are unreachable, and no release may ever wake a waiter: it must
// retry after a pause.
func HeldByOther(votes []Vote) bool {
	for _, v := range votes {
		same := 0
		for _, other := range votes {
			if other.State == Held && v.State == Held && other.Holder == v.Holder {
				same++
			}
		}
		if same >= Size(len(votes)) {
			return true
		}
	}
	return false
}

// FreeAfter returns the time after which a quorum of the nodes is free, according to the
// votes, if nothing is renewed or released.
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
