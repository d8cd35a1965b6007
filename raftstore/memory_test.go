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
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// newBareNode returns a node without the Raft library: only the observers of the machine.
func newBareNode() *Node {
	n := &Node{hub: hub.New(), logger: quiet, config: Config{Clock: engine.MonotonicClock()}}
	n.committer = newCommitter(n)
	n.fsm = replica.New("n", func(err error) { panic(err) }, follower{n})
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

// fillLeases acquires this many locks in one session, through the encoding of the log.
func fillLeases(f *replica.FSM, leases int) {
	id := engine.NewSessionID()
	index := uint64(1)
	apply := func(commands ...machine.Command) {
		f.Apply(&raft.Log{Index: index, Data: replica.EncodeEntry(f.Chain(), commands)})
		index++
	}
	apply(&machine.OpenSession{Session: id, TTL: time.Hour})
	for first := 0; first < leases; first += 250 {
		var batch []machine.Command
		for i := first; i < first+250; i++ {
			request := engine.Request{Nonce: engine.Nonce(i + 1),
				Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("tenant/orders/%06d", i))},
				Mode:      engine.Correctness, Wait: true, Holder: "worker-17.example:4711"}
			batch = append(batch, &machine.Acquire{Session: id, Incarnation: 1, Request: request})
		}
		apply(batch...)
	}
}

func TestMemoryOfLeases(t *testing.T) {
	const leases, most = 100_000, 500
	f := newBareNode().fsm
	before := heapInUse()
	fillLeases(f, leases)
	each := (heapInUse() - before) / leases
	f.Read(func(m *machine.Machine) { require.Equal(t, leases, m.Count().Holders) })
	require.LessOrEqual(t, each, uint64(most), "bytes per lease and node")
	t.Logf("%d bytes per lease", each)
}
