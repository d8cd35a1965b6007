package leases

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// The last copy of a call that leaves withdraws the attempt, also if all leave together. A copy that arrives meanwhile
// waits until that is done.
func TestCopyWaitsForTheWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c copies
		id := engine.SessionID{1}
		c.arrive(id)
		c.arrive(id)
		c.leave(id, func() { t.Error("the other copy waits") })
		release, withdrawn, arrived := make(chan struct{}), false, false
		go c.leave(id, func() { <-release; withdrawn = true })
		synctest.Wait()
		go func() { c.arrive(id); arrived = true }()
		synctest.Wait()
		require.False(t, arrived, "the attempt is being withdrawn")
		close(release)
		synctest.Wait()
		require.True(t, withdrawn)
		require.True(t, arrived)
		c.leave(id, nil)
		require.Empty(t, c.served)
	})
}
