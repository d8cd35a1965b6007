package observe

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// newService returns the Service of a cluster of one member without Redis nodes.
func newService(t testing.TB) *Service {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	recorder := NewRecorder(engine.MonotonicClock())
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0",
		Logger: quiet, Observer: recorder, Times: recorder})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.Bootstrap())
	require.Eventually(t, node.Leads, time.Minute, time.Millisecond)
	backend, err := raftstore.NewBackend(node)
	require.NoError(t, err)
	router := &routing.Router{Node: node, Raft: backend, Redis: fleet.NewConnection(node, nil, redlockadapter.Hooks{},
		quiet), Clock: engine.SystemClock()}
	return NewService(router, recorder, nil)
}

// The first scan after a time without viewers shows no list of the Redis nodes from before
// that time. While viewers come regularly, a scan waits for no list.
func TestOldListOfRedisIsNotShown(t *testing.T) {
	s := newService(t)
	for _, c := range []struct {
		name  string
		ago   time.Duration // since the list was due
		shown bool
	}{
		{"due", 0, true},
		{"a scan ago", 2 * scanInterval, true},
		{"not viewed for a minute", time.Minute, false},
		{"not viewed for hours", 3 * time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.redisMu.Lock()
			running := s.listing
			s.redisMu.Unlock()
			if running != nil {
				<-running // of the last case
			}
			due := s.router.Clock.Now().Add(-c.ago)
			s.inRedis = redisList{at: due.Add(-redisInterval),
				rows: []row{{name: "fast/old", mode: engine.Efficiency, holders: 1}}}
			s.redisNext = due
			require.Equal(t, c.shown, len(s.scanAll().rows) == 1)
		})
	}
}
