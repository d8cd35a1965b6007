package quorum

import "github.com/leased-project/leased/fencing"

// Attempt follows one try of one nonce on all nodes: answers go in, raises come
// out. It does no I/O and reads no clock. It is not safe for concurrent use.
type Attempt struct {
	votes    []Vote
	proposed fencing.Token // the value of the last raise, or None
	outcome  Outcome
	token    fencing.Token
}

// Raise asks a node to accept a larger token.
type Raise struct {
	Node  int
	Token fencing.Token
}

// NewAttempt returns an Attempt on n nodes, none of which has answered.
func NewAttempt(n int) *Attempt { return &Attempt{votes: make([]Vote, n)} }

// Resume returns an Attempt in the middle of its way, for a checker that keeps
// attempts as plain values: with these votes, the last proposed value, and the
// granted token, or None.
func Resume(votes []Vote, proposed, granted fencing.Token) *Attempt {
	a := &Attempt{votes: votes, proposed: proposed, token: granted}
	if granted != fencing.None {
		a.outcome = Granted
	}
	return a
}

// Proposed returns the value of the last raise, or None.
func (a *Attempt) Proposed() fencing.Token { return a.proposed }

// Votes returns the latest answer of each node. The caller must not change it.
func (a *Attempt) Votes() []Vote { return a.votes }

// Outcome returns Wait until the attempt is decided, then Granted or Lost.
func (a *Attempt) Outcome() Outcome { return a.outcome }

// Token returns the granted token, or None.
func (a *Attempt) Token() fencing.Token { return a.token }

// Answer takes in a node's answer to the acquire. The raises are to be sent.
func (a *Attempt) Answer(node int, v Vote) []Raise {
	v.Raising = a.votes[node].Raising
	a.votes[node] = v
	if a.outcome == Granted && v.State == Accepted && v.Token < a.token {
		return []Raise{a.raise(node, a.token)} // else the counters differ next time
	}
	return a.decide()
}

// Raised takes in a node's answer to a raise: Accepted with the token, or the
// reason why not.
func (a *Attempt) Raised(node int, token fencing.Token, v Vote) []Raise {
	vote := &a.votes[node]
	if token >= a.proposed {
		vote.Raising = false
	}
	switch {
	case v.State == Accepted:
		vote.State, vote.Token = Accepted, max(vote.Token, token)
	case vote.State == Accepted && vote.Token >= token: // it had accepted more by itself
	default:
		vote.State = v.State
	}
	return a.decide()
}

// decide acts on the votes until the attempt is decided.
func (a *Attempt) decide() []Raise {
	if a.outcome != Wait {
		return nil
	}
	d := Decide(a.votes, a.proposed)
	if d.Outcome == Wait {
		return nil
	}
	var raises []Raise
	for node, v := range a.votes {
		behind := v.State == Accepted && v.Token < d.Token
		switch {
		case d.Outcome == Differ && (behind || v.State == Pending), d.Outcome == Granted && behind && !v.Raising:
			raises = append(raises, a.raise(node, d.Token))
		}
	}
	if d.Outcome == Differ {
		a.proposed = d.Token
		return raises
	}
	a.outcome = d.Outcome
	if d.Outcome == Granted {
		a.token = d.Token
	}
	return raises
}

func (a *Attempt) raise(node int, token fencing.Token) Raise {
	a.votes[node].Raising = true
	return Raise{Node: node, Token: token}
}
