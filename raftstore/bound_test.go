package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
)

// The bound of docs/GUARANTEES.md: (k+1) TTL + k (e + 0.5 s) + c.
func TestFailoverExtensionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, failovers = 10 * time.Second, 3
		const commit = 100 * time.Millisecond // plus the poll interval of this test
		clock := engine.MonotonicClock()
		c := startMemory(t, 3)
		s, next := openSession(t, c.backend(), ttl), openSession(t, c.backend(), time.Hour)
		_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)
		_, err = s.Renew(testContext(t))
		require.NoError(t, err)
		renewed := clock.Now()
		var elections time.Duration
		for range failovers {
			pass(ttl - commit) // the worst moment: the TTL was almost over
			old, began := c.leader(), clock.Now()
			c.isolate(old)
			eventually(t, "another leader", func() bool { return c.leader() != old && !old.Leads() })
			elections += clock.Now().Since(began)
			c.heal()
		}
		served := clock.Now()
		request := lockRequest(1, "a")
		request.Wait = true
		_, err = next.Acquire(testContext(t), request)
		require.NoError(t, err)
		took := clock.Now().Since(renewed)
		require.LessOrEqual(t, took, (failovers+1)*ttl+failovers*lessor.ProofLife+elections+commit, "elections took %v",
			elections)
		require.Greater(t, clock.Now().Since(served), ttl-commit, "each leader gave the full TTL")
	})
}
