package demo_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/demo"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
)

// A minute of the demo grants many locks, keeps one of them blocked, and has late writes
// refused.
func TestLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend, err := memory.New()
		require.NoError(t, err)
		client, err := lease.New(backend)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out strings.Builder
		var refused []*fencing.StaleError
		hold := func(ctx context.Context, resource fencing.Resource, holder string, ttl time.Duration) (fencing.Token,
			error) {
			session, err := backend.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl,
				Clock: engine.SystemClock()})
			require.NoError(t, err)
			grant, err := session.Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{resource}, Wait: true,
				Holder: holder})
			return grant.Token, err
		}
		demo := &demo.Load{Client: client, Workers: 20, Prefix: "demo/", Out: &out, Hold: hold,
			Refused: func(_ context.Context, stale *fencing.StaleError, holder string) error {
				require.Equal(t, "ledger-1", holder)
				refused = append(refused, stale)
				return nil
			}}
		var work sync.WaitGroup
		work.Go(func() { demo.Run(ctx) })
		time.Sleep(30 * time.Second)
		blocked, err := client.Inspect(ctx, "demo/deploy/production")
		require.NoError(t, err)
		require.Equal(t, "deploy-bot", blocked.Holders[0].Holder)
		require.Len(t, blocked.Waiters, 3)
		began := time.Now()
		work.Wait()
		require.LessOrEqual(t, time.Since(began), 30*time.Second, "the end of the context ends all holds")
		require.NotEmpty(t, refused)
		for _, stale := range refused {
			require.Equal(t, fencing.Resource("demo/ledger/2026"), stale.Resource)
			require.Less(t, stale.Token, stale.Mark)
		}
		require.Equal(t, int64(len(refused)), demo.Totals().Refused)
		require.Greater(t, demo.Totals().Grants, int64(100))
		require.NotContains(t, out.String(), "failed")
		require.Empty(t, demo.Totals().Failures)
		require.NoError(t, client.Close(t.Context()))
	})
}

// Failures are counted by code, and only the first one with each code is printed.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend, err := memory.New()
		require.NoError(t, err)
		client, err := lease.New(backend)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second)
		defer cancel()
		var out strings.Builder
		demo := &demo.Load{Client: client, Workers: 0, Prefix: "demo/", Out: &out,
			Hold: func(context.Context, fencing.Resource, string, time.Duration) (fencing.Token, error) {
				return fencing.None, lease.ErrForbidden
			}}
		demo.Run(ctx)
		require.Equal(t, map[string]int64{"forbidden": 4}, demo.Totals().Failures)
		require.Equal(t, 1, strings.Count(out.String(), "the paused writer failed: "), out.String())
		require.NoError(t, client.Close(t.Context()))
	})
}
