package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/memory"
)

func TestConformance(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		t.Run(mode.String(), func(t *testing.T) {
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				backend, err := memory.New(engine.Policy{Mode: mode})
				require.NoError(t, err)
				return leasetest.Subject{
					Backend: func() engine.Backend { return backend },
					Mode:    mode,
					TTL:     10 * time.Second,
					Clock:   leasetest.NewClock(),
					FIFO:    true,
				}
			}, leasetest.InBubble())
		})
	}
}
