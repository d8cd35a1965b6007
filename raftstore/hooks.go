package raftstore

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// Hooks are called while a node works, for metrics. They must return at once. A nil hook
// costs nothing.
type Hooks struct {
	// Applied is called after each command that this node has committed as the leader,
	// under the lock of the machine. It must not keep the events. Followers that apply
	// the same command do not call it, so all calls in a cluster count each event at most
	// once. Events of an entry are not reported if its leader lost leadership before it
	// applied the entry.
	Applied func(events []machine.Event)
	// Committed is called after this node, as the leader, has committed an entry with
	// this number of operations. took is the time from its proposal until it was applied.
	Committed func(operations int, took time.Duration)
	// HandedOff is called when a caller on this node that waited for a lock gets it. took
	// is the time from the arrival, on this node, of the command that freed the lock: a
	// release, the end of a session, a break, or the end of a lock delay.
	HandedOff func(took time.Duration)
	// Stored is called after entries were written to the log on disk, with the time of
	// the write and its fsync.
	Stored func(took time.Duration)
	// Snapshot is called after a snapshot was written to disk.
	Snapshot func(took time.Duration, bytes int64)
	// LeaderChanged is called when this node learns of another leader, and when the same
	// leader leads again after there was none.
	LeaderChanged func()
	// Restored is called on the node that has restored a saved snapshot, with the number
	// of leases that ended with the former state.
	Restored func(leases int)
}

// stopwatch measures durations for hooks. It does not count the time for which the machine
// is suspended, and is cheaper than a Clock that does.
var stopwatch = engine.MonotonicClock()

// caller is the caller of an operation.
type caller struct {
	Caller
	arrived engine.Instant // see arrival
}

// arrival returns the time if a command may free a lock for which a caller of this node
// waits. Otherwise nobody needs the time.
func (n *Node) arrival(c machine.Command) (now engine.Instant) {
	if n.config.Hooks.HandedOff == nil || !n.hub.HasWaits() {
		return now
	}
	switch c.(type) {
	case *machine.Release, *machine.CloseSession, *machine.Expire, *machine.EndRequests, *machine.Break, *machine.EndDelay:
		return stopwatch.Now()
	}
	return now
}

// arrivals finds the arrival of each command of the entry that is being applied. The lock of
// the machine guards it.
type arrivals struct {
	operations []operation
	last       engine.Instant // that is known: the one of an EndRequests that the proposer has added
}

// next returns the arrival of the next command, zero if it is unknown.
func (a *arrivals) next() (arrived engine.Instant) {
	for i := range a.operations {
		if op := &a.operations[i]; op.Command != nil {
			a.operations = a.operations[i+1:]
			if arrived = op.Caller.arrived; !arrived.IsZero() {
				a.last = arrived
			}
			return arrived
		}
	}
	return a.last
}

// handedOff calls HandedOff for a wait that ended with a grant.
func (h *Hooks) handedOff(w *hub.Wait) {
	if h.HandedOff != nil && w.Err == nil && w.Result.Code == machine.Granted && !w.Arrived.IsZero() {
		h.HandedOff(stopwatch.Now().Since(w.Arrived))
	}
}
