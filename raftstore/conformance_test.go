package raftstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/logstore"
)

func TestConformance(t *testing.T) {
	for _, kind := range []logstore.Kind{logstore.WAL, logstore.Bolt} {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d nodes", kind, size), func(t *testing.T) {
				c := startDisk(t, size, kind)
				leasetest.Run(t, func(t *testing.T) leasetest.Subject {
					return leasetest.Subject{
						Backend: func() lease.Backend { return c.backend() },
						Mode:    lease.Correctness,
						TTL:     700 * time.Millisecond,
						FIFO:    true,
					}
				})
				c.agree()
			})
		}
	}
}

func TestConformanceInVirtualTime(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		c := startMemory(t, 3)
		return leasetest.Subject{
			Backend: func() lease.Backend { return c.backend() },
			Mode:    lease.Correctness,
			TTL:     10 * time.Second,
			Clock:   lease.MonotonicClock(),
			FIFO:    true,
		}
	}, leasetest.InBubble())
}
