package quorum

import "github.com/leased-project/leased/fencing"

// Attempt is one acquisition attempt on all nodes. It takes the answers of the nodes and the
// passing of time, and returns the requests to send. It is not safe for concurrent use. Only its
// methods change it; the fields are exported for checkers that store attempts as values.
//
// An attempt asks a quorum of the nodes first, and the others when
//
//   - the first ones cannot decide it: one has failed or refused, or their votes differ;
//   - they are slow;
//   - it was granted, and the lease is held for a while.
//
// So a lease is on a quorum when it is granted, and soon on all nodes, with its granted token:
// any process can find it there. From then on it ends early only if a majority of the nodes lose
// it. A lease that is released sooner costs nothing on the other nodes, and they need no release. No
// token depends on this: for the protocol, a node that was not asked is one whose request is late.
type Attempt struct {
	Votes    []Vote        // the latest answer of each node
	Proposed fencing.Token // by the last raise, or None
	Outcome  Outcome       // Wait until the attempt is decided, then Granted or Lost
	Token    fencing.Token // the granted token, or None

	Unasked    Nodes // were not sent anything
	Pending    Nodes // were sent an acquire, and have neither answered nor failed
	Unanswered Nodes // may still execute an acquire or a raise
	Renewing   Nodes // may still execute a renewal
	Accepted   Nodes // accepted the acquire, even if they refused a raise
	Informed   Nodes // were told the granted token
	Spread     bool  // the nodes that do not have the granted attempt get it
	Ended      bool  // released or withdrawn
}

// Requests are the requests that an attempt sends.
type Requests struct {
	Acquire Nodes         // get the acquire
	Granted fencing.Token // goes with it; None before the grant
	Raise   Nodes         // are asked to accept a larger token
	RaiseTo fencing.Token
}

// NewAttempt returns an Attempt on n nodes that were not asked.
func NewAttempt(n int) *Attempt { return &Attempt{Votes: make([]Vote, n), Unasked: All(n)} }

// First returns the nodes that an attempt asks first: a quorum of the usable ones, or all nodes if
// there are fewer. The choice depends on the lock, so all nodes have the same load, and processes that
// contend for a lock ask the same nodes. order has all nodes, in the same order in every process.
func First(lock fencing.Resource, order []int, usable Nodes) (first Nodes) {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(lock) {
		hash = (hash ^ uint32(lock[i])) * 16777619
	}
	n := len(order)
	for i := range n {
		if node := order[(int(hash%uint32(n))+i)%n]; usable.Has(node) {
			first |= 1 << node
		}
		if first.Count() == Size(n) {
			return first
		}
	}
	return All(n)
}

// Ask asks the nodes in the set that were not asked yet, unless the attempt has ended.
func (a *Attempt) Ask(nodes Nodes) Requests {
	if a.Ended {
		return Requests{}
	}
	nodes &= a.Unasked
	a.asked(nodes)
	return Requests{Acquire: nodes}
}

// asked records that nodes get an acquire.
func (a *Attempt) asked(nodes Nodes) {
	a.Unasked &^= nodes
	a.Pending |= nodes
	a.Unanswered |= nodes
}

// AskRest asks the nodes that were not asked yet: the first ones are slow.
func (a *Attempt) AskRest() Requests { return a.Ask(a.Unasked) }

// SpreadGrant sends a granted attempt to the nodes that do not have it, and its token to those that
// accepted another one: other processes cannot tell the token from their records.
func (a *Attempt) SpreadGrant() Requests {
	a.Spread = true
	if a.Ended || a.Outcome != Granted {
		return Requests{}
	}
	nodes := a.Unasked
	for node, v := range a.Votes {
		if v.State == Accepted && v.Token != a.Token && !v.Raising && !(a.Unanswered | a.Informed).Has(node) {
			nodes |= 1 << node
		}
	}
	if nodes == 0 {
		return Requests{}
	}
	a.asked(nodes)
	a.Informed |= nodes
	return Requests{Acquire: nodes, Granted: a.Token}
}

// Answer records a node's answer to the acquire. late says that the node may still execute it.
func (a *Attempt) Answer(node int, v Vote, late bool) Requests {
	bit := Nodes(1) << node
	a.Pending &^= bit
	if !late {
		a.Unanswered &^= bit
	}
	if v.State == Accepted {
		a.Accepted |= bit
	}
	v.Raising = a.Votes[node].Raising
	a.Votes[node] = v
	var send Requests
	if a.Outcome == Granted && v.State == Accepted && v.Token < a.Token {
		send = a.raise(bit, a.Token) // otherwise the next attempt needs two rounds
	} else {
		send = a.decide()
	}
	var more Requests
	switch failed := v.State == Refused || v.State == Failed; {
	case a.Outcome == Wait && (failed || a.Pending == 0):
		more = a.AskRest()
	case a.Spread:
		more = a.SpreadGrant()
	}
	send.Acquire, send.Granted = more.Acquire, more.Granted
	return send
}

// Raised records a node's answer to a raise with this token. late says that the node may still
// execute it.
func (a *Attempt) Raised(node int, token fencing.Token, v Vote, late bool) Requests {
	if late {
		a.Unanswered |= 1 << node
	}
	vote := &a.Votes[node]
	if token >= a.Proposed {
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

// decide applies Decide until the attempt is decided or has ended.
func (a *Attempt) decide() Requests {
	if a.Outcome != Wait || a.Ended {
		return Requests{}
	}
	d := Decide(a.Votes, a.Proposed)
	if d.Outcome == Wait {
		return Requests{}
	}
	var behind Nodes
	for node, v := range a.Votes {
		old := v.State == Accepted && v.Token < d.Token
		pending := v.State == Pending && !a.Unasked.Has(node)
		if d.Outcome == Differ && (old || pending) || d.Outcome == Granted && old && !v.Raising {
			behind |= 1 << node
		}
	}
	switch d.Outcome {
	case Differ:
		a.Proposed = d.Token
	case Granted:
		a.Outcome, a.Token = Granted, d.Token
	default:
		a.Outcome = d.Outcome
	}
	return a.raise(behind, d.Token)
}

// raise asks nodes to accept a larger token, unless the attempt has ended.
func (a *Attempt) raise(nodes Nodes, token fencing.Token) Requests {
	if nodes == 0 || a.Ended {
		return Requests{}
	}
	for node := range nodes.Each {
		a.Votes[node].Raising = true
	}
	return Requests{Raise: nodes, RaiseTo: token}
}

// Renew reports whether the lease may be renewed: it has not ended. A renewal goes to all nodes, and
// those that were not asked before take the lease by it.
func (a *Attempt) Renew() bool {
	if a.Ended {
		return false
	}
	a.Unasked, a.Renewing = 0, All(len(a.Votes))
	return true
}

// Renewed records that a node answered a renewal. late says that the node may still execute it.
func (a *Attempt) Renewed(node int, late bool) {
	if !late {
		a.Renewing &^= 1 << node
	}
}

// End ends the attempt. It returns the nodes that get a release, and which of them must refuse a late copy
// of a request. A lease is released on every node that was asked, including nodes that failed. An attempt
// that was not granted is released on the nodes that may have accepted it. A node that refused a raise
// still holds the lock for it.
func (a *Attempt) End() (release, late Nodes) {
	a.Ended = true
	late = a.Unanswered | a.Renewing
	if a.Outcome == Granted {
		return All(len(a.Votes)) &^ a.Unasked, late
	}
	return a.Accepted | late, late
}
