package raftstore

import "github.com/leased-project/leased/raftstore/machine"

// Observer sees what the machine of a node does, for tests that check the whole
// service by its log. It is called before anyone is answered, with the node's
// lock held: it must not block, nor keep what it is given, nor call the node.
type Observer interface {
	// Applied: a command of the entry at index was applied, and these events
	// came of it. A node that is opened again begins anew from its last
	// snapshot.
	Applied(index uint64, events []machine.Event)
	// Restored: the machine was replaced by this one.
	Restored(m *machine.Machine)
}

// saw tells the observer of a command.
func (n *Node) saw(index uint64, events []machine.Event) {
	if n.config.Observer != nil {
		n.config.Observer.Applied(index, events)
	}
}

// sawRestored tells the observer of a restore.
func (n *Node) sawRestored(m *machine.Machine) {
	if n.config.Observer != nil {
		n.config.Observer.Restored(m)
	}
}

func (deaf) saw(uint64, []machine.Event)  {}
func (deaf) sawRestored(*machine.Machine) {}
