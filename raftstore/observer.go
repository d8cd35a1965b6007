package raftstore

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
)

// Observer receives the changes of a node's machine, for watches, and for tests that check the whole service
// by its log. It is called before any caller is answered, under the lock of the machine. It
// must not block, keep its arguments, or call the node.
type Observer interface {
	// Applied is called after a command of an entry was applied. A node that is opened
	// again starts from its last snapshot.
	Applied(entry Entry, events []machine.Event)
	// Restored is called after the machine was replaced.
	Restored(m *machine.Machine)
}

// Entry describes a log entry to an Observer.
type Entry struct {
	Index uint64
	// At is when the leader appended the entry, by its wall clock. It is for people to
	// read, and zero if it is unknown.
	At time.Time
	// Order is machine.Order after the command.
	Order uint64
}

// Times knows when something happened, for people to read. It returns the zero time if it
// does not know.
type Times interface {
	// Granted returns when a token was granted.
	Granted(token fencing.Token) time.Time
	// Queued returns when the waiter with this machine.Order was queued.
	Queued(order uint64) time.Time
}

// follower is the replica.Observer of a node. It updates everything on the node that depends
// on the state of the machine.
type follower struct{ *Node }

// Applied is called after each command. The caller holds the lock of the machine.
func (f follower) Applied(entry *raft.Log, m *machine.Machine, c machine.Command, result machine.Result,
	events []machine.Event) []func() {
	if f.config.Observer != nil {
		f.config.Observer.Applied(Entry{Index: entry.Index, At: entry.AppendedAt, Order: m.Order()}, events)
	}
	calls := f.logEvents(events)
	term := f.leading.Load()
	term.applied(c, result, events)
	if open, ok := c.(*machine.OpenSession); ok && term != nil {
		// The command's TTL need not be that of the session. Before applied, it could give a session a deadline that has
		// passed, if the leadership is older than the TTL.
		term.adoptOne(m, open.Session)
	}
	if f.config.Hooks.Applied != nil && len(events) > 0 && term != nil && term.generation == m.Generation() {
		f.config.Hooks.Applied(events)
	}
	f.topology.update(m)
	if _, ok := c.(*machine.SetMemberAPI); ok {
		f.publishMemberAPIs(m)
	}
	return append(calls, f.hub.Applied(m, c, result, events, f.applying.next())...)
}

// Restored is called after the machine was replaced. The caller holds its lock.
func (f follower) Restored(old, now *machine.Machine) []func() {
	if f.config.Observer != nil {
		f.config.Observer.Restored(now)
	}
	f.topology.update(now)
	f.publishMemberAPIs(now)
	return f.hub.Restored(old, now)
}

// Awaits reports whether this node has proposed the entry and awaits it. The caller holds
// the lock of the machine.
func (f follower) Awaits(data []byte) bool {
	flight := f.committer.inFlight(data)
	f.applying = arrivals{}
	if flight != nil && f.config.Hooks.HandedOff != nil {
		f.applying.operations = flight.Operations
	}
	return flight != nil
}

// Answer passes the results of an entry to the callers that await them.
func (f follower) Answer(data []byte, results []machine.Result) { f.committer.applied(data, results) }
