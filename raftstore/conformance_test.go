package raftstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/logstore"
)

func TestConformance(t *testing.T) {
	for _, on := range []struct {
		kind logstore.Kind
		size int
	}{{logstore.WAL, 1}, {logstore.WAL, 3}, {logstore.Bolt, 1}, {logstore.Bolt, 3}} {
		t.Run(fmt.Sprintf("%s, %d nodes", on.kind, on.size), func(t *testing.T) {
			c := startDisk(t, on.size, on.kind)
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				return leasetest.Subject{
					Backend: func() engine.Backend { return c.backend() },
					Mode:    engine.Correctness,
					TTL:     700 * time.Millisecond,
					FIFO:    true,
				}
			})
			c.agree()
		})
	}
}

func TestConformanceInVirtualTime(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		c := startMemory(t, 3)
		return leasetest.Subject{
			Backend: func() engine.Backend { return c.backend() },
			Mode:    engine.Correctness,
			TTL:     10 * time.Second,
			Clock:   engine.MonotonicClock(),
			FIFO:    true,
		}
	}, leasetest.InBubble())
}
