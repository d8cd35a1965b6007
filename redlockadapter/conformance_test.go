package redlockadapter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/leasetest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			f := startFleet(t, n).init(t)
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				return leasetest.Subject{
					Backend:     func() lease.Backend { return f.backend(t) },
					Mode:        lease.Efficiency,
					TTL:         4 * time.Second,
					Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
				}
			})
		})
	}
}
