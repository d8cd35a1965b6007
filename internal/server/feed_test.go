package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// TestCausesComeFromTheLog: who watches is told how a lease has ended though this
// member's API was not asked for it, as when another member led.
func TestCausesComeFromTheLog(t *testing.T) {
	var node *raftstore.Node
	s := startOne(t, func(c *server.Config) { node = c.Node })
	prefix := ""
	byPrefix := events(t, s.Address(), &pb.WatchRequest{Prefix: &prefix})
	byName := events(t, s.Address(), &pb.WatchRequest{Resource: "a"})
	backend, err := raftstore.NewBackend(node)
	require.NoError(t, err)
	session, err := backend.Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute, Clock: engine.SystemClock()})
	require.NoError(t, err)
	for _, watch := range []func() *pb.Event{byPrefix, byName} {
		require.Equal(t, "synced", watch().Type)
	}
	for nonce, end := range []struct {
		how  string
		done func(nonce engine.Nonce, token fencing.Token) error
	}{
		{"released", func(nonce engine.Nonce, _ fencing.Token) error { return session.Release(patient(t), nonce) }},
		{"broken", func(_ engine.Nonce, token fencing.Token) error { return backend.Break(patient(t), "a", token) }},
		{"released", func(engine.Nonce, fencing.Token) error { return session.Close(patient(t)) }},
	} {
		grant, err := session.Acquire(patient(t), engine.Request{Nonce: engine.Nonce(nonce + 1), Resources: []fencing.Resource{"a"}})
		require.NoError(t, err)
		for _, watch := range []func() *pb.Event{byPrefix, byName} {
			require.Equal(t, "granted", watch().Type)
		}
		require.NoError(t, end.done(engine.Nonce(nonce+1), grant.Token))
		for _, watch := range []func() *pb.Event{byPrefix, byName} {
			require.Equal(t, end.how, watch().Type)
		}
	}
}
