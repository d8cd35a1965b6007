package quorum

import "github.com/leased-project/leased/fencing"

// GrantedToken returns the token of an attempt that holds a lock, from the tokens in the records of the
// nodes, out of n, that hold the lock for it: the token that a quorum of them has. It is None if
// there is none; then the attempt cannot be told from one that was not granted.
//
// A record has the token that the node accepted, until the node is told the granted one.
func GrantedToken(tokens []fencing.Token, n int) fencing.Token {
	votes := map[fencing.Token]int{}
	for _, t := range tokens {
		if votes[t]++; votes[t] == Size(n) {
			return t
		}
	}
	return fencing.None
}

// Renewal counts the answers of Nodes nodes to the renewal of a lease.
type Renewal struct {
	Nodes    int
	Extended int // nodes that extended the lease
	Lost     int // nodes on which the lease has ended
	Failed   int // nodes that failed, or did not vote
}

// RenewalOutcome is the state of a renewal.
type RenewalOutcome uint8

const (
	// RenewalWaits for more answers.
	RenewalWaits RenewalOutcome = iota
	// RenewalExtended: a quorum has extended the lease.
	RenewalExtended
	// RenewalLost: the lease has ended on a quorum, so no renewal can succeed any more.
	RenewalLost
	// RenewalUncertain: all nodes have answered, and neither is the case.
	RenewalUncertain
)

// Outcome returns the outcome so far. If too many nodes have failed, the lease cannot be
// extended any more, but a quorum may still report that it is lost.
func (r *Renewal) Outcome() RenewalOutcome {
	switch q := Size(r.Nodes); {
	case r.Extended >= q:
		return RenewalExtended
	case r.Lost >= q:
		return RenewalLost
	case r.Extended+r.Lost+r.Failed < r.Nodes:
		return RenewalWaits
	}
	return RenewalUncertain
}

// Release counts the answers of Nodes nodes to the release of an attempt.
type Release struct {
	Nodes  int
	Free   int // nodes that do not hold the lock for the attempt: they confirmed it, or got no request
	Failed int // nodes that failed
}

// Confirmed reports whether a quorum is free of the attempt.
func (r *Release) Confirmed() bool { return r.Free >= Size(r.Nodes) }

// Done reports whether the outcome is certain: it is confirmed, or all nodes have answered.
func (r *Release) Done() bool { return r.Confirmed() || r.Free+r.Failed == r.Nodes }
