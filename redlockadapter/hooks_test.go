package redlockadapter_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// Hooks report handoffs inside this process, leases that nobody renewed, and the round
// trips of each node.
func TestHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		other := f.backend(t)
		var mu sync.Mutex
		handoffs, replies, expired := 0, map[string]int{}, []string{}
		f.config.Hooks = redlockadapter.Hooks{
			HandedOff: func(time.Duration) { mu.Lock(); defer mu.Unlock(); handoffs++ },
			Expired:   func(h engine.Held) { mu.Lock(); defer mu.Unlock(); expired = append(expired, string(h.Resources[0])) },
			Node: func(address string) redlockadapter.NodeHooks {
				return redlockadapter.NodeHooks{Replied: func(time.Duration) { mu.Lock(); defer mu.Unlock(); replies[address]++ }}
			},
		}
		own := f.backend(t)
		count := func() int { mu.Lock(); defer mu.Unlock(); return handoffs }
		for _, c := range []struct {
			holder *redlockadapter.Backend
			want   int
		}{{own, 1}, {other, 1}} { // a release by another process is not measured
			held := acquireAlone(t, c.holder, "a")
			granted := make(chan Held, 1)
			go func() {
				h, err := acquireWait(t.Context(), own, "a")
				if err != nil {
					t.Error(err)
				}
				granted <- h
			}()
			advance(900 * time.Millisecond) // the waiter is between two polls
			require.NoError(t, c.holder.Release(t.Context(), held))
			require.NoError(t, own.Release(t.Context(), <-granted))
			require.Equal(t, c.want, count())
		}

		acquireAlone(t, own, "forgotten")
		kept := acquireAlone(t, own, "renewed elsewhere")
		require.NoError(t, own.Release(t.Context(), acquireAlone(t, own, "released")))
		require.NoError(t, other.Release(t.Context(), acquireAlone(t, own, "released elsewhere")))
		for range 8 {
			advance(virtualTTL / 2)
			require.Equal(t, []error{nil}, other.Renew(t.Context(), []engine.Held{kept}))
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"forgotten"}, expired)
		require.Len(t, replies, 3)
	})
}
