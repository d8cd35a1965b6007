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

// service is an engine in memory that records refused writes.
type service struct {
	*memory.Backend
	err     error // of reports
	refused []engine.Refusal
}

func (s *service) ReportRefusal(_ context.Context, refusal engine.Refusal) error {
	s.refused = append(s.refused, refusal)
	return s.err
}

// A minute of the demo grants many locks, keeps one of them blocked, and has late writes
// refused.
func TestLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend, err := memory.New()
		require.NoError(t, err)
		service := &service{Backend: backend}
		client, err := lease.New(service)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out strings.Builder
		demo := &demo.Load{Client: client, Workers: 20, Prefix: "demo/", Out: &out}
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
		require.NotEmpty(t, service.refused)
		for _, refusal := range service.refused {
			require.Equal(t, "ledger-1", refusal.Holder)
			require.Equal(t, fencing.Resource("demo/ledger/2026"), refusal.Resource)
			require.Less(t, refusal.Token, refusal.Mark)
		}
		require.Equal(t, int64(len(service.refused)), demo.Totals().Refused)
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
		client, err := lease.New(&service{Backend: backend, err: lease.ErrForbidden})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var out strings.Builder
		demo := &demo.Load{Client: client, Workers: 0, Prefix: "demo/", Out: &out}
		demo.Run(ctx) // a pause of 3 s every 8 s
		require.Equal(t, map[string]int64{"forbidden": 4}, demo.Totals().Failures)
		require.Equal(t, 1, strings.Count(out.String(), "the paused writer failed: "), out.String())
		require.NoError(t, client.Close(t.Context()))
	})
}
