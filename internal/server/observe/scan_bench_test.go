package observe

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// BenchmarkScan measures a scan of many locks, which all viewers share, and the view of one
// viewer, for each sort.
//
//	go test -run '^$' -bench Scan ./internal/server/observe
func BenchmarkScan(b *testing.B) {
	const locks = 10_000
	s := newService(b)
	ctx := context.Background()
	session, err := s.router.Raft.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour,
		Clock: engine.SystemClock()})
	require.NoError(b, err)
	slots := make(chan struct{}, 256)
	for i := range locks {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			_, err := session.Acquire(ctx, engine.Request{Nonce: engine.Nonce(i + 1),
				Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("jobs/%07d", i))}, Holder: "worker"})
			if err != nil {
				b.Error(err)
			}
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			require.Len(b, s.scanAll().rows, locks)
		}
	})
	all := s.scanAll()
	for order := range orders {
		b.Run("view by "+order, func(b *testing.B) {
			for b.Loop() {
				require.Len(b, s.view(ctx, all, overviewRequest{order: order, limit: 100}).Locks, 100)
			}
		})
	}
}
