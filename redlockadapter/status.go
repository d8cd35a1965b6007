package redlockadapter

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
)

// NodeStatus is how one node is doing.
type NodeStatus struct {
	Addr string
	// Err is why it could not be asked; nothing else is known then.
	Err error
	// Empty: it has lost its data, or may have, and does not vote.
	Empty bool
	// Restarted: it is kept out only since it was restarted, and says that it has
	// lost nothing. It votes again as soon as a majority that was not restarted has
	// told it how far tokens have come. Only where there is none, as after a power
	// cut, is it believed.
	Restarted bool
	// Quarantine is how long an empty node is kept out at least, counted from
	// when it was first seen to be empty.
	Quarantine time.Duration
	// Epoch, Max and Floor are the node's counters.
	Epoch uint64
	Max   fencing.Token
	Floor fencing.Token
	// Skew is how far its clock is ahead of ours, as far as can be told.
	Skew time.Duration
}

// NodeStatuses asks every node how it is doing, in the order of Config.Nodes.
func (b *Backend) NodeStatuses(ctx context.Context) []NodeStatus {
	states, errs := b.states(ctx)
	all := make([]NodeStatus, len(states))
	for i, s := range states {
		all[i] = NodeStatus{Addr: b.nodes[i].addr, Err: errs[i]}
		if errs[i] != nil {
			continue
		}
		all[i].Empty, all[i].Restarted = !s.data, s.doubted
		all[i].Epoch, all[i].Max, all[i].Floor, all[i].Skew = s.epoch, s.max, s.floor, s.skew
		if !s.data {
			b.epochs.poke() // it may not be known yet
		}
		if !s.data && !s.doubted {
			all[i].Quarantine = max(0, b.quarantine(states)-s.since)
		}
	}
	return all
}

// Epoch is the epoch that new attempts carry, 0 while there is none.
func (b *Backend) Epoch() uint64 { return b.epochs.current.Load() }
