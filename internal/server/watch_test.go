package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	prefix := "w/"
	for name, request := range map[string]*pb.WatchRequest{"lock": {Resource: "one"}, "prefix": {Prefix: &prefix}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := request.Resource
			if lock == "" {
				lock = "w/lock"
			}
			ctx := testContext(t)
			api := pb.NewLeaseServiceClient(dial(t, s.Address()))
			first, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: lock, Ttl: "5m", Holder: "first"})
			require.NoError(t, err)
			next := watchEvents(t, s.Address(), request)
			e := next()
			require.Equal(t, "granted", e.Type)
			require.Equal(t, "first", e.Party.Holder)
			require.Equal(t, first.Token, e.Party.Token)
			require.Equal(t, "synced", next().Type)

			granted := make(chan *pb.AcquireResponse, 1)
			go func() {
				second, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: lock, Ttl: "10s", Wait: "5m", Holder: "second"})
				if err != nil {
					t.Error(err)
				}
				granted <- second
			}()
			e = next()
			require.Equal(t, "waiting", e.Type)
			require.EqualValues(t, 1, e.Place)
			_, err = api.Release(ctx, &pb.ReleaseRequest{Resource: lock, Token: first.Token})
			require.NoError(t, err)
			require.Equal(t, "released", next().Type)
			e = next()
			require.Equal(t, "granted", e.Type)
			require.Equal(t, (<-granted).Token, e.Party.Token)
			require.Equal(t, "expired", next().Type, "it is not renewed")

			third, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: lock, Ttl: "5m"})
			require.NoError(t, err)
			require.Equal(t, "granted", next().Type)
			_, err = api.Break(ctx, &pb.BreakRequest{Resource: lock, Token: third.Token})
			require.NoError(t, err)
			require.Equal(t, "broken", next().Type)
		})
	}
}

// A watch reports why a lease ended although the call that ended it did not come
// through this member's API, as when another member led.
func TestWatchTakesReasonsFromTheLog(t *testing.T) {
	t.Parallel()
	var node *raftstore.Node
	s := startServer(t, func(c *server.Config) { node = c.Node })
	prefix := ""
	watches := []func() *pb.Event{watchEvents(t, s.Address(), &pb.WatchRequest{Prefix: &prefix}),
		watchEvents(t, s.Address(), &pb.WatchRequest{Resource: "a"})}
	expect := func(kind string) {
		t.Helper()
		for _, next := range watches {
			require.Equal(t, kind, next().Type)
		}
	}
	backend, err := raftstore.NewBackend(node)
	require.NoError(t, err)
	session, err := backend.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: longTTL, Clock: engine.SystemClock()})
	require.NoError(t, err)
	expect("synced")
	for nonce, end := range []struct {
		reason string
		do     func(nonce engine.Nonce, token fencing.Token) error
	}{
		{"released", func(nonce engine.Nonce, _ fencing.Token) error {
			return session.Release(testContext(t), engine.Held{Nonce: nonce})
		}},
		{"broken", func(_ engine.Nonce, token fencing.Token) error { return backend.Break(testContext(t), "a", token) }},
		{"released", func(engine.Nonce, fencing.Token) error { return session.Close(testContext(t)) }},
	} {
		grant, err := session.Acquire(testContext(t), engine.Request{Nonce: engine.Nonce(nonce + 1), Resources: []fencing.Resource{"a"}})
		require.NoError(t, err)
		expect("granted")
		require.NoError(t, end.do(engine.Nonce(nonce+1), grant.Token))
		expect(end.reason)
	}
}
