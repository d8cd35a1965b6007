package redlock

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// The most that a State has room for.
const (
	maxNodes      = 5
	maxAttempts   = 3
	maxTopologies = 6
)

// token is a small fencing.Token: the upper half counts jumps of recovery.Jump,
// the lower one single tokens. The largest stands for fencing.MaxToken.
type token = uint8

const (
	jump token = 16
	most token = 255
)

func large(t token) fencing.Token {
	if t == most {
		return fencing.MaxToken
	}
	return fencing.Token(t/jump)*recovery.Jump + fencing.Token(t%jump)
}

func small(t fencing.Token) token {
	if t == fencing.MaxToken {
		return most
	}
	jumps, rest := t/recovery.Jump, t%recovery.Jump
	if jumps > 15 || rest > 15 {
		panic(fmt.Sprintf("token %d jumps and %d does not fit: lower the bounds of the search", jumps, rest))
	}
	return token(jumps)*jump + token(rest)
}

// message is where a request is. It can be late, its answer can be late, and both
// can stay on their way for ever.
type message uint8

const (
	unsent   message = iota
	asked            // on its way to the node
	answered         // the answer is on its way back
	done             // the client has the answer, or gave up
	astray           // on its way to the node; nobody waits for the answer
)

// exchange is what one attempt and one node have said to each other, and what the
// attempt makes of it.
type exchange struct {
	Acquire  message
	Says     quorum.State // the answer to the acquire, while it is on its way
	Token    token
	Raise    message
	RaiseTo  token
	RaiseOK  bool
	Vote     quorum.State // as in quorum.Vote
	Accepted token
	Raising  bool
}

// node is one Redis node and all messages to and from it. Without a version it is
// empty. Nodes of the same fleets are interchangeable.
type node struct {
	Version, Fleet      uint8
	Max, Floor, Ceiling token
	Lock                uint8 // attempt + 1; 0 if free
	Last                token // the last token accepted for the lock; 0 if there is no record
	Join                bool  // the join nonce of the range below is on the node

	Range        message // unsent, asked (the log has not assigned it yet), answered (it is on its way to the node)
	RangeVersion uint8
	RangeFleet   uint8
	RangeFloor   token
	RangeCeiling token

	Reached bool // it reported that it has reached the log's goal
	Told    bool // it reported to a log that reconciles

	Former        bool // a former life left evidence
	FormerVersion uint8
	FormerMax     token
	FormerFloor   token
	FormerCeiling token

	// The standalone recovery of this node.
	Reporters uint8 // who has reported
	Top       token // the largest token in the reports
	Decided   bool  // a quorum has reported
	Target    token // the floor of the next life
	Reservers uint8 // who has stored that floor

	Exchanges [maxAttempts]exchange
}

// attempt is what a client knows of one attempt.
type attempt struct {
	Started  bool
	Version  uint8
	Fleet    uint8
	Proposed token
	Outcome  quorum.Outcome
	Token    token
	Before   token // the largest token that was granted when it started
}

// mode of the lock.
type mode uint8

const (
	none mode = iota
	efficiency
	correctness
)

// register is the Raft log, as an atomic register: what the machine holds.
type register struct {
	Version        uint8
	Mode, Next     mode
	Last           token // the last token of correctness mode
	Floor, Ceiling token
	Fleet          uint8
	NextFleet      uint8
	Ready          bool
	Restored       bool
	Reconciled     bool // the log has moved past the reports; not Ready yet
}

// topology is what a client may know: that the lock is in efficiency mode.
type topology struct{ Version, Fleet uint8 }

// budget is what may still happen.
type budget struct {
	Losses, Ranges, Moves, Aborts, Fleets, Grants, Backups, Restores uint8
}

// State is one state of everything. It consists of bytes only, and the nodes in
// use are next to the rest.
type State struct {
	Log        register
	Earlier    register // the log at its former version: messages of it may be late
	Saved      register // the backup
	ToldMax    topology // the largest version in the reports to a log that reconciles
	ToldTop    token    // and the largest ceiling
	Topologies [maxTopologies]topology
	Left       budget
	Issued     [3]token // by correctness mode
	Top        token    // the largest that was granted
	Attempts   [maxAttempts]attempt
	Nodes      [maxNodes]node
}

// Violation says which promise was broken.
type Violation string

// Error is the violation.
func (v Violation) Error() string { return string(v) }

// granted holds a grant against the promises. before is the largest token that was
// granted before it started.
func (w *State) granted(t, before token) error {
	for _, a := range w.Attempts {
		if a.Outcome == quorum.Granted && a.Token == t {
			return Violation(fmt.Sprintf("T1: token %s is granted twice", name(t)))
		}
	}
	for _, issued := range w.Issued {
		if issued == t {
			return Violation(fmt.Sprintf("T1: token %s is granted twice", name(t)))
		}
	}
	if t <= before {
		return Violation(fmt.Sprintf("T2: token %s is granted, though %s was granted before the attempt started", name(t), name(before)))
	}
	w.Top = max(w.Top, t)
	return nil
}

// name writes a token as jumps and rest.
func name(t token) string {
	if t == most {
		return "max"
	}
	if t < jump {
		return fmt.Sprint(t)
	}
	return fmt.Sprintf("%dJ+%d", t/jump, t%jump)
}
