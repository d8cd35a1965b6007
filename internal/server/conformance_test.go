package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/remote"
)

// client is one more process that uses the service.
func client(t testing.TB, endpoints ...string) *remote.Backend {
	t.Helper()
	b, err := remote.New(endpoints)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestConformanceOfOne(t *testing.T) {
	s := startOne(t)
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		return leasetest.Subject{
			Backend: func() lease.Backend { return client(t, s.Address()) },
			Mode:    lease.Correctness,
			TTL:     700 * time.Millisecond,
			FIFO:    true,
		}
	})
}
