package promise

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Kind is what an Event tells of.
type Kind uint8

// The kinds of an Event. The first group is seen by clients, the second by the
// storage behind its gate in the order in which it does things, the third by
// the lock service in the order of its log, the fourth by whoever makes faults.
const (
	// Asked: a client is about to send the first request of Attempt.
	Asked Kind = iota + 1
	// Told: the client was told that Attempt is granted with Token.
	Told
	// Refused: the client was told for certain that Attempt is not granted.
	Refused
	// Ended: the client stops to work under Token: it is about to release, or
	// was told that the lease is lost, or its own clock says that it is over.
	Ended
	// Sent: a holder is about to send operation Op to the gate under Token.
	Sent
	// Acknowledged: the holder was told that Op was applied.
	Acknowledged
	// Rejected: the holder was told that Op was refused.
	Rejected

	// Entered: the storage has admitted Token without a write.
	Entered
	// Wrote: the storage has applied Op under Token. The holder had read version
	// Seen before; the data has version Version now.
	Wrote
	// Stale: the storage has refused Op under Token. Nothing was written.
	Stale
	// Found: at the end the storage holds Version.
	Found

	// Granted: the log says that Attempt holds Resource under Token.
	Granted
	// Freed: the log says that Attempt holds Resource no more.
	Freed
	// Applied: node Who has applied all entries up to Index, and its running
	// hash is Hash.
	Applied

	// Fault: something was broken: Note names the kind of fault.
	Fault
	// Paused: Who stands still until it is Resumed.
	Paused
	// Resumed: Who goes on.
	Resumed
	// Healed: nothing is broken any more; from here on there must be progress.
	Healed
	// Served: after Healed, a free lock was granted.
	Served

	// Restored: an operator has put an old state in the place of the service's.
	// What the log granted since is forgotten, and may be granted again, under
	// larger tokens.
	Restored
)

var kindNames = [...]string{"", "asked", "told", "refused", "ended", "sent", "acknowledged", "rejected",
	"entered", "wrote", "stale", "found", "granted", "freed", "applied",
	"fault", "paused", "resumed", "healed", "served", "restored"}

// String is the word for k.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Attempt is the identity of one attempt to get a lock: session and nonce, or
// whatever a setting tells its attempts apart by. It is never used again.
type Attempt string

// Event is one thing that happened. Which fields count is told by its Kind.
type Event struct {
	// At is when, on the clock of whoever watches all of it: not on that of the
	// party it happened to.
	At   time.Duration
	Kind Kind
	// Who it happened to: a client, a node, a storage.
	Who string

	Resource fencing.Resource
	Attempt  Attempt
	Token    fencing.Token
	// Unlogged, of Told: the grant was made in efficiency mode, so that no log has
	// it.
	Unlogged bool

	Op            uint64 // of the gate; unique
	Seen, Version uint64
	Index, Hash   uint64
	Note          string
}

// String is the event on one line.
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
