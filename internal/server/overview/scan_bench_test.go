package overview

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/watch"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// BenchmarkScan measures a scan of many locks, which all viewers share, and the view of one
// viewer, for each sort.
//
//	go test -run '^$' -bench Scan ./internal/server/overview
func BenchmarkScan(b *testing.B) {
	const locks = 10_000
	quiet := slog.New(slog.DiscardHandler)
	hub := watch.NewHub()
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet, Observer: hub, Times: hub.Recorder})
	require.NoError(b, err)
	defer func() { require.NoError(b, node.Close()) }()
	require.NoError(b, node.Bootstrap())
	require.Eventually(b, node.Leads, time.Minute, time.Millisecond)
	backend, err := raftstore.NewBackend(node)
	require.NoError(b, err)
	ctx := context.Background()
	session, err := backend.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour, Clock: engine.SystemClock()})
	require.NoError(b, err)
	slots := make(chan struct{}, 256)
	for i := range locks {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			_, err := session.Acquire(ctx, engine.Request{Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("jobs/%07d", i))}, Holder: "worker"})
			if err != nil {
				b.Error(err)
			}
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	router := &routing.Router{Node: node, Raft: backend, Redis: fleet.NewConnection(node, nil, redlockadapter.Hooks{}, quiet), Clock: engine.SystemClock()}
	s := NewService(router, hub.Recorder)
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			require.Len(b, s.scanAll().rows, locks)
		}
	})
	all := s.scanAll()
	for order := range orders {
		b.Run("view by "+order, func(b *testing.B) {
			for b.Loop() {
				require.Len(b, s.view(ctx, all, request{order: order, limit: 100}).Locks, 100)
			}
		})
	}
}
