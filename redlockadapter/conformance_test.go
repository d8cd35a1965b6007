package redlockadapter_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

// The suite waits for leases that expire, so it runs in virtual time. A bubble also fails
// if Close leaks a goroutine.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			t.Parallel()
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				f := newVirtualFleet(t, n).init(t)
				return leasetest.Subject{
					Backend:     func() engine.Backend { return f.backend(t) },
					Mode:        engine.Efficiency,
					TTL:         virtualTTL,
					Clock:       f.clock,
					Sessionless: true,
					Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
				}
			}, leasetest.InBubble())
		})
	}
}

// The main cases of the suite, on real servers.
func TestRealServersServeClients(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, n).init(t)
			client := func() *lease.Client {
				c, err := lease.New(f.backend(t), lease.WithPolicies(engine.Policy{TTL: longTTL}))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
				return c
			}
			mine, other := client(), client()
			ctx := testContext(t)
			l, err := mine.Acquire(ctx, "a", lease.WithSet("b", "c"))
			require.NoError(t, err)
			_, err = other.TryAcquire(ctx, "c")
			require.ErrorIs(t, err, engine.ErrHeld)
			require.NoError(t, l.Renew(ctx))
			next := make(chan fencing.Token)
			go func() {
				l, err := other.Acquire(ctx, "c")
				if err != nil {
					t.Error(err)
					close(next)
					return
				}
				next <- l.Token()
			}()
			waitFor(t, func() bool {
				status, err := mine.Inspect(ctx, "c")
				return err == nil && len(status.Waiters) == 1
			})
			require.NoError(t, l.Release(ctx))
			token := <-next
			require.True(t, token.Newer(l.Token()))
			require.NoError(t, mine.Break(ctx, "c", token))
			again, err := mine.TryAcquire(ctx, "c")
			require.NoError(t, err)
			require.True(t, again.Token().Newer(token))
			_, err = mine.Acquire(ctx, "d", lease.WithShared())
			require.ErrorIs(t, err, engine.ErrUnsupported)
			require.ErrorContains(t, err, "correctness mode")
			_, err = mine.Acquire(ctx, "d", lease.WithPermits(2))
			require.ErrorIs(t, err, engine.ErrUnsupported)
		})
	}
}
