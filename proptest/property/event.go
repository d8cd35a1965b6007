package property

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events. Clients observe the first group; the storage observes the
// second, in the order in which it applies operations; the lock service the third,
// in log order; the fault injector the fourth.
const (
	// Requested: a client is about to send the first request of Attempt.
	Requested Kind = iota + 1
	// Acquired: the client received the grant of Attempt with Token.
	Acquired
	// Denied: the client learned that Attempt is definitely not granted.
	Denied
	// Ended: the client stops working under Token. It is about to release, it
	// learned that the lease is lost, or its local deadline has passed.
	Ended
	// Sent: a holder is about to send operation Op to the gate under Token.
	Sent
	// Acknowledged: the holder learned that Op was applied.
	Acknowledged
	// Rejected: the holder learned that Op was refused.
	Rejected

	// Entered: the storage admitted Token without a write.
	Entered
	// Wrote: the storage applied Op under Token. The holder had read version Seen;
	// the data now has version Version.
	Wrote
	// Stale: the storage refused Op under Token and wrote nothing.
	Stale
	// Found: at the end of the run the storage holds Version.
	Found

	// Granted: in the log, Attempt holds Resource under Token.
	Granted
	// Freed: in the log, Attempt no longer holds Resource.
	Freed
	// Applied: node Who has applied all entries up to Index, and its chain hash is
	// Hash.
	Applied

	// Fault: a fault was injected; Note names its kind.
	Fault
	// Paused: Who is paused until it is Resumed.
	Paused
	// Resumed: Who runs again.
	Resumed
	// Healed: all faults are repaired; from here on there must be progress.
	Healed
	// Served: after Healed, a free lock was granted.
	Served

	// Restored: an operator replaced the state of the service by an older one. Later
	// grants are lost and may be repeated, under larger tokens.
	Restored
)

var kindNames = [...]string{"", "requested", "acquired", "denied", "ended", "sent", "acknowledged", "rejected",
	"entered", "wrote", "stale", "found", "granted", "freed", "applied",
	"fault", "paused", "resumed", "healed", "served", "restored"}

// String returns the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Access is the kind of an operation at the gate.
type Access uint8

// The kinds of operations. The Checker ignores the answers to an Enter or a Read, which CheckLinearizable
// checks.
const (
	Write Access = iota
	Enter        // raises the mark
	Read         // needs no token
)

// String returns the name of the kind.
func (a Access) String() string { return [...]string{"write", "enter", "read"}[a] }

// Attempt identifies one acquisition attempt: session and nonce, or any other
// identity that a setting never reuses.
type Attempt string

// Event is one observation. Its Kind determines which fields are set.
type Event struct {
	// At is the time on the observer's clock, not on that of the process concerned.
	At   time.Duration
	Kind Kind
	// Who is the client, node or storage concerned.
	Who string

	Resource fencing.Resource
	Attempt  Attempt
	Token    fencing.Token
	// Unlogged marks an Acquired event of the efficiency mode, whose grants are not
	// in the log.
	Unlogged bool

	Op     uint64 // at the gate; unique
	Access Access // of Sent, Acknowledged and Rejected
	// Seen and Version are versions of the data. Those of a client may be any value that identifies what it wrote or
	// read.
	Seen, Version uint64
	Index, Hash   uint64
	Note          string
}

// String formats the event on one line.
func (e Event) String() string {
	s := fmt.Sprintf("%12s  %-12s %-10s", e.At, e.Who, e.Kind)
	if e.Resource != "" {
		s += fmt.Sprintf(" %s", e.Resource)
	}
	if e.Attempt != "" {
		s += fmt.Sprintf(" attempt %s", e.Attempt)
	}
	if e.Token != fencing.None {
		s += fmt.Sprintf(" token %d", e.Token)
	}
	if e.Op != 0 {
		s += fmt.Sprintf(" op %d", e.Op)
	}
	if e.Access != Write {
		s += " " + e.Access.String()
	}
	if e.Kind == Wrote {
		s += fmt.Sprintf(" version %d -> %d", e.Seen, e.Version)
	}
	if e.Kind == Applied {
		s += fmt.Sprintf(" index %d hash %016x", e.Index, e.Hash)
	}
	if e.Note != "" {
		s += " " + e.Note
	}
	return s
}
