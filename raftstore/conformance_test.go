package raftstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

// TestConformance runs the suite of all engines in virtual time: on log stores in
// real folders, and in memory, where only the protocol can fail.
func TestConformance(t *testing.T) {
	run := func(name string, size int, start func(t testing.TB) *cluster) {
		t.Run(fmt.Sprintf("%s, %d nodes", name, size), func(t *testing.T) {
			t.Parallel()
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				c := start(t)
				return leasetest.Subject{
					Backend: func() engine.Backend { return c.backend() },
					Mode:    engine.Correctness,
					TTL:     10 * time.Second,
					Clock:   engine.MonotonicClock(),
					FIFO:    true,
				}
			}, leasetest.InBubble())
		})
	}
	run("memory", 3, func(t testing.TB) *cluster { return startMemory(t, 3) })
	for _, kind := range kinds {
		for _, size := range []int{1, 3} {
			run(string(kind), size, func(t testing.TB) *cluster { return startDisk(t, size, kind) })
		}
	}
}
