package raftstore

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// The caller of a restore gives up while the restore is in progress. Whatever the outcome, the
// leader must not serve while the machine is replaced, because leases would never expire.
func TestAbandonedRestore(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := startMemory(t, 3)
			n := c.leader()
			var saved bytes.Buffer
			_, err := n.SaveSnapshot(testContext(t), &saved)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(testContext(t))
			go cancel()
			if _, err := n.RestoreSnapshot(ctx, &saved); err != nil {
				require.NotErrorIs(t, err, engine.ErrHeld)
			}
			s := retrying{openSession(t, c.backend(), engine.DefaultTTL)}
			_, err = s.Acquire(testContext(t), lockRequest(1, "a"))
			require.NoError(t, err)
			time.Sleep(3 * engine.DefaultTTL)
			other := retrying{openSession(t, c.backend(), engine.DefaultTTL)}
			_, err = other.Acquire(testContext(t), lockRequest(1, "a"))
			require.NoError(t, err, "the old lease has expired")
		})
	}
}
