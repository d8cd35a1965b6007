package raftstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// newBareNode is a node without an engine: what hears of the machine.
func newBareNode() *Node {
	n := &Node{hub: newHub(), config: Config{Clock: engine.MonotonicClock()}}
	n.committer = newCommitter(n)
	n.leading.Store(n.newLeadership(machine.New(), n.config.Clock.Now()))
	return n
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// fillLeases has one session take so many locks, through the log's encoding.
func fillLeases(f *fsm, leases int) {
	id := engine.NewSessionID()
	index := uint64(1)
	apply := func(commands ...machine.Command) {
		f.Apply(&raft.Log{Index: index, Data: encodeEntry(f.position().link(), commands)})
		index++
	}
	apply(&machine.OpenSession{Session: id, TTL: time.Hour})
	for first := 0; first < leases; first += 250 {
		var batch []machine.Command
		for i := first; i < first+250; i++ {
			request := engine.Request{Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("tenant/orders/%06d", i))},
				Mode: engine.Correctness, Wait: true, Holder: "worker-17.example:4711"}
			batch = append(batch, &machine.Acquire{Session: id, Incarnation: 1, Request: request})
		}
		apply(batch...)
	}
}

func TestMemoryOfLeases(t *testing.T) {
	const leases, most = 100_000, 500
	f := newFSM("n", func(err error) { t.Error(err) }, newBareNode())
	before := heapInUse()
	fillLeases(f, leases)
	each := (heapInUse() - before) / leases
	require.Equal(t, leases, f.machine.Count().Holders)
	require.LessOrEqual(t, each, uint64(most), "bytes a lease and node")
	t.Logf("%d bytes a lease", each)
}
