package raftstore

import "github.com/leased-project/leased/raftstore/machine"

// Observer receives the changes of a node's machine, for tests that check the whole service
// by its log. It is called before any caller is answered, under the lock of the machine. It
// must not block, keep its arguments, or call the node.
type Observer interface {
	// Applied is called after a command of the entry at index was applied. A node that is
	// opened again starts from its last snapshot.
	Applied(index uint64, events []machine.Event)
	// Restored is called after the machine was replaced.
	Restored(m *machine.Machine)
}

// follower is the replica.Observer of a node. It updates everything on the node that depends
// on the state of the machine.
type follower struct{ *Node }

// Applied is called after each command. The caller holds the lock of the machine.
func (f follower) Applied(index uint64, m *machine.Machine, c machine.Command, result machine.Result, events []machine.Event) []func() {
	if f.config.Observer != nil {
		f.config.Observer.Applied(index, events)
	}
	f.logEvents(events)
	term := f.leading.Load()
	term.applied(c, result, events)
	if f.config.Hooks.Applied != nil && len(events) > 0 && term != nil && term.generation == m.Generation() {
		f.config.Hooks.Applied(events)
	}
	f.topology.update(m)
	return f.hub.Applied(m, c, result, events, f.applying.next())
}

// Restored is called after the machine was replaced. The caller holds its lock.
func (f follower) Restored(old, now *machine.Machine) []func() {
	if f.config.Observer != nil {
		f.config.Observer.Restored(now)
	}
	f.topology.update(now)
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
