package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The followers notice a lost leader one heartbeat timeout after the last contact, and elect
// the next one in their turns: not after up to three timeouts. The time is virtual.
func TestLostLeaderIsNoticedOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		for range 10 {
			old := c.leader()
			time.Sleep(20 * old.config.HeartbeatTimeout) // nobody is left from an earlier election
			old = c.leader()
			timeout := old.config.HeartbeatTimeout
			c.isolate(old)
			time.Sleep(timeout + 3*timeout/contactSteps)
			next := 0
			for _, n := range c.nodes {
				if n != old && n.Leads() {
					next++
				}
			}
			require.Equal(t, 1, next, "leaders after a timeout and the turns")
			c.heal()
		}
	})
}

// A node that has not caught up keeps its long timeouts, with which it starts no election.
func TestContactCheckKeepsCatchingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startMemory(t, 1).nodes[0]
		require.NoError(t, n.catchUp.begin(n.raft.LastIndex()+100))
		require.NoError(t, n.catchUp.checkContact())
		require.Equal(t, noElectionTimeout, n.raft.ReloadableConfig().HeartbeatTimeout)
	})
}
