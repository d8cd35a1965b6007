package redlock

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// The capacity of a State.
const (
	maxNodes      = 5
	maxAttempts   = 3
	maxTopologies = 8
	maxServers    = 3 // behind one address
	maxOpen       = 4
)

// token is a compact fencing.Token: the upper half counts multiples of recovery.Jump, the
// lower half single tokens. The largest stands for fencing.MaxToken.
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
		panic(fmt.Sprintf("token of %d jumps and %d does not fit: reduce the bounds of the search", jumps, rest))
	}
	return token(jumps)*jump + token(rest)
}

// message is the state of a request. Request and answer may be delayed forever.
type message uint8

const (
	unsent    message = iota
	sent              // in flight to the node
	answered          // the answer is in flight
	done              // answered, or the client gave up
	abandoned         // in flight to the node; the client gave up
)

// exchange is the communication of one attempt with one node, and the resulting vote.
type exchange struct {
	Acquire  message
	Answer   quorum.State // the answer to the acquire, while in flight
	Token    token
	Raise    message
	RaiseTo  token
	RaiseOK  bool
	Vote     quorum.State // as in quorum.Vote
	Accepted token
	Raising  bool

	// As in quorum.Attempt, with Bounds.QuorumFirst.
	Took     bool // the node accepted the acquire
	Late     bool // the node may execute a request that it did not answer
	Informed bool // the node was told the granted token
	Release  message
	Refuses  bool // the release refuses late copies

	// Of a break, with Bounds.Leases.
	Confirmed bool  // the node confirmed it in its present round
	Checked   uint8 // server + 1 that the address led to in the second round
}

// server is one run of a Redis server and the messages to it. Version 0 is an empty server.
type server struct {
	data
	Lock        uint8 // attempt + 1; 0 if free
	Last        token // the token of the attempt, or the last one of the lock; 0 without a record
	Counter     token // the largest accepted token, if it is above Last
	Renewed     bool  // the attempt was renewed with Last
	Expired     bool  // the attempt has expired
	Ended       token // the largest token whose lease has ended
	Released    uint8 // attempt + 1 that was released last
	Initialised uint8 // the join nonce that made it a voter
	Join        uint8 // the join nonce on it
	Joins       uint8 // the number of nonces that were put on it
	Gone        bool  // the server has stopped, or no process is connected to it any longer
	Stale       uint8 // attempts whose lease was not renewed since the quarantine of the server began, one bit each

	Init       call  // in flight; its Join is 0 if there is none
	Reached    bool  // it reported that it reached the log's goal
	ReachedMax token // the largest token in that report

	Former former // the data of a former life that survived
	standaloneRecovery
}

// data is the data of a server about itself.
type data struct {
	Version, Fleet      uint8
	Max, Floor, Ceiling token
	Successor           uint8 // the fleet that replaces its fleet
}

// call is an init.
type call struct {
	Join, Version, Fleet uint8
	Floor, Ceiling       token
	Successor            uint8
}

// former is the data of a former life. Server is the latest server that was initialised with it, plus 1.
type former struct {
	Known  bool
	Server uint8
	data
}

// standaloneRecovery is the recovery of a server without a log.
type standaloneRecovery struct {
	Reporters uint8 // nodes that reported
	Top       token // the largest token in the reports
	Decided   bool  // a quorum has reported
	Target    token // the new floor
	Reservers uint8 // nodes that stored the new floor
	Waited    bool  // its quarantine is over
}

// life is a life of an address in the log: the server and its join nonce. 0 is none.
type life uint8

// unknown is a life that the log has forgotten.
const unknown life = maxServers << 2

func lifeOf(server int, join uint8) life { return life(server<<2 | int(join)) }
func (l life) server() int               { return int(l >> 2) }
func (l life) join() uint8               { return uint8(l & 3) }

// member is a node of the fleet in the log: its life, and the floor of that life once no older set is open.
// Version 0 is a life that has voted before.
type member struct {
	Life    life
	Version uint8
	Floor   token
}

// node is one address of a Redis node, with the servers that it has led to. Nodes of the
// same fleets are interchangeable, so everything about a node is here.
type node struct {
	Current uint8 // the server that the address leads to
	Count   uint8 // of servers
	Servers [maxServers]server

	Log        member
	Topologies [maxTopologies]life // by the order of State.Topologies
	Open       [maxOpen]life       // by the order of State.Open

	Reported     bool // it reported for a reconciliation
	ReportedLife life

	Exchanges [maxAttempts]exchange
}

// current returns the server that the address leads to.
func (n *node) current() *server { return &n.Servers[n.Current] }

// attempt is the state of one attempt at its client.
type attempt struct {
	Started  bool
	Topology uint8 // names its lives
	Version  uint8
	Fleet    uint8
	Proposed token
	Outcome  quorum.Outcome
	Token    token
	Before   token // the largest token granted before it started
	Over     bool  // its holder does not renew it any more
	Spread   bool  // as in quorum.Attempt
	Ended    bool
	Breaking uint8 // topology + 1 of its break
	Round    uint8 // of the break: 1 or 2
	Broken   bool  // a quorum confirmed both rounds
}

// mode is the mode of the lock.
type mode uint8

const (
	none mode = iota
	efficiency
	correctness
)

// register is the Raft log, as an atomic register with the state of the machine.
type register struct {
	Version        uint8
	Mode, Next     mode
	Last           token // the last token of correctness mode
	Floor, Ceiling token
	Fleet          uint8
	NextFleet      uint8
	Ready          bool
	Restored       bool // it lacks the past since its backup
	Reconciled     bool // reconciled, but not Ready yet
}

// topology is a topology in which the lock is in efficiency mode.
type topology struct{ Version, Fleet uint8 }

// budget is the remaining number of each kind of event.
type budget struct {
	Losses, Replaced, Back, Ranges, Moves, Aborts, Fleets, Grants, Backups, Restores, Breaks uint8
}

// State is the state of the whole system. It consists of bytes only, and unused nodes are
// at the end.
type State struct {
	Log               register
	Earlier           register // the log at its previous version, whose messages may be late
	Saved             register // the backup
	ReportedVersion   uint8    // the largest version reported for a reconciliation
	ReportedCeiling   token    // the largest ceiling reported
	ReportedSuccessor uint8    // a fleet that replaced the reported one
	ReportedNewest    uint8    // the largest version of the fleet that was reported
	Topologies        [maxTopologies]topology
	Open              [maxOpen]uint8 // the versions of the open sets, oldest first
	Left              budget
	Issued            [3]token // in correctness mode
	Top               token    // the largest granted token
	Attempts          [maxAttempts]attempt
	Nodes             [maxNodes]node
}

// Violation is a violated property.
type Violation string

// Error returns the violation.
func (v Violation) Error() string { return string(v) }

// checkGrant checks a grant. before is the largest token granted before it started.
func (s *Search) checkGrant(w *State, t, before token) {
	again := func(a attempt) bool { return a.Outcome == quorum.Granted && a.Token == t }
	if slices.ContainsFunc(w.Attempts[:], again) || slices.Contains(w.Issued[:], t) {
		s.violated("T1: token %s is granted twice", name(t))
	}
	if t <= before {
		s.violated("T2: token %s is granted, although %s was granted before the attempt started", name(t), name(before))
	}
	w.Top = max(w.Top, t)
}

// name formats a token as jumps and rest.
func name(t token) string {
	if t == most {
		return "max"
	}
	if t < jump {
		return fmt.Sprint(t)
	}
	return fmt.Sprintf("%dJ+%d", t/jump, t%jump)
}
