package raftstore

import (
	"context"
	"sync"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

var _ engine.TopologySource = (*Node)(nil)

// topologyWatch has the newest topology that a node has applied, for those who
// wait for the next one. The zero value has an empty topology.
type topologyWatch struct {
	mu      sync.Mutex
	newest  engine.Topology
	changed chan struct{} // closed when newest is replaced; nil without waiters
}

// update stores the topology of a machine if it has another version. The caller holds fsm.mu.
func (f *topologyWatch) update(m *machine.Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.newest.Version == m.Version() {
		return
	}
	f.newest = m.Topology()
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// get returns the newest topology, and a channel that is closed when there is a newer one.
func (f *topologyWatch) get() (engine.Topology, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.newest, f.changed
}

// Topology returns the topology that this node has applied. It needs no leader.
func (n *Node) Topology() engine.Topology {
	n.topology.mu.Lock()
	defer n.topology.mu.Unlock()
	return n.topology.newest
}

// NextTopology waits until this node has applied a topology whose version is
// above after, and returns it. It needs no leader.
func (n *Node) NextTopology(ctx context.Context, after uint64) (engine.Topology, error) {
	for {
		t, changed := n.topology.get()
		if t.Version > after {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return engine.Topology{}, engine.Cause(ctx)
		case <-n.stopped:
			return engine.Topology{}, ErrStopped
		}
	}
}
