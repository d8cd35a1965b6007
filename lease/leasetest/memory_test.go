package leasetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/leasetest"
)

func TestMemoryConforms(t *testing.T) {
	for _, mode := range []lease.Mode{lease.Correctness, lease.Efficiency} {
		t.Run(mode.String(), func(t *testing.T) {
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				memory, err := leasetest.NewMemory(lease.Policy{Mode: mode})
				require.NoError(t, err)
				return leasetest.Subject{
					Backend: func() lease.Backend { return memory },
					Mode:    mode,
					TTL:     10 * time.Second,
					Clock:   leasetest.NewClock(),
					FIFO:    true,
				}
			}, leasetest.InBubble())
		})
	}
}
