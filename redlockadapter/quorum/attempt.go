package quorum

import "github.com/leased-project/leased/fencing"

// Attempt is one acquisition attempt on all nodes. It takes the answers of the nodes and
// returns the raises to send. It is not safe for concurrent use.
type Attempt struct {
	votes    []Vote
	proposed fencing.Token // by the last raise, or None
	outcome  Outcome
	token    fencing.Token
}

// Raise asks a node to accept a larger token.
type Raise struct {
	Node  int
	Token fencing.Token
}

// NewAttempt returns an Attempt on n nodes without answers.
func NewAttempt(n int) *Attempt { return &Attempt{votes: make([]Vote, n)} }

// Resume returns an Attempt with these votes, the token that was proposed last, and the
// granted token; both may be None. It is for checkers that store attempts as values.
func Resume(votes []Vote, proposed, granted fencing.Token) *Attempt {
	a := &Attempt{votes: votes, proposed: proposed, token: granted}
	if granted != fencing.None {
		a.outcome = Granted
	}
	return a
}

// Proposed returns the token of the last raise, or None.
func (a *Attempt) Proposed() fencing.Token { return a.proposed }

// Votes returns the latest answer of each node. The caller must not change it.
func (a *Attempt) Votes() []Vote { return a.votes }

// Outcome returns Wait until the attempt is decided, then Granted or Lost.
func (a *Attempt) Outcome() Outcome { return a.outcome }

// Token returns the granted token, or None.
func (a *Attempt) Token() fencing.Token { return a.token }

// Uninformed returns the nodes that hold the lock for a granted attempt with another token than the
// granted one. Other processes cannot tell the token from their records.
func (a *Attempt) Uninformed() (nodes []int) {
	for node, v := range a.votes {
		if a.outcome == Granted && v.State == Accepted && v.Token != a.token && !v.Raising {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Answer records a node's answer to the acquire, and returns the raises to send.
func (a *Attempt) Answer(node int, v Vote) []Raise {
	v.Raising = a.votes[node].Raising
	a.votes[node] = v
	if a.outcome == Granted && v.State == Accepted && v.Token < a.token {
		return []Raise{a.raise(node, a.token)} // otherwise the next attempt needs two rounds
	}
	return a.decide()
}

// Raised records a node's answer to a raise with this token, and returns the raises to
// send.
func (a *Attempt) Raised(node int, token fencing.Token, v Vote) []Raise {
	vote := &a.votes[node]
	if token >= a.proposed {
		vote.Raising = false
	}
	switch {
	case v.State == Accepted:
		vote.State, vote.Token = Accepted, max(vote.Token, token)
	case vote.State == Accepted && vote.Token >= token: // it has already accepted a larger one
	default:
		vote.State = v.State
	}
	return a.decide()
}

// decide applies Decide until the attempt is decided.
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
