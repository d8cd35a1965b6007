package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// slowEngine is the Redis engine of a server that is paused right after a grant.
type slowEngine struct {
	*redlockadapter.Backend
	paused func(lease.Request)
}

func (e *slowEngine) Open(ctx context.Context, c lease.SessionConfig) (lease.Session, error) {
	s, err := e.Backend.Open(ctx, c)
	return &slowSession{Session: s, engine: e}, err
}

type slowSession struct {
	lease.Session
	engine *slowEngine
}

func (s *slowSession) Acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	grant, err := s.Session.Acquire(ctx, r)
	s.engine.paused(r)
	return grant, err
}

// TestPauseAfterGrant: a server that is paused between the grant of Redis and its
// answer, while the lock begins to move to the other mode, does not answer with
// the grant.
func TestPauseAfterGrant(t *testing.T) {
	addresses := startRedis(t, 3)
	engine, err := redlockadapter.New(patient(t), redisConfig(addresses))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close(context.Background())) })
	var address string
	moved := make(chan int, 1)
	slow := &slowEngine{Backend: engine, paused: func(r lease.Request) {
		if r.Resources[0] != "fast/paused" {
			return
		}
		go func() {
			code, _ := post(t, address, "/v1/delete-policy", `{"prefix":"fast/"}`)
			moved <- code
		}()
		eventually(t, "others are refused", func() bool {
			_, answer := post(t, address, "/v1/acquire", `{"resource":"fast/other","ttl":"100ms"}`)
			why, _ := answer["message"].(string)
			return strings.Contains(why, "on the move")
		})
	}}
	s := startOne(t, func(c *server.Config) {
		c.Redis, c.RedisMaxTTL = slow, redisMaxTTL
	})
	address = s.Address()
	setMode(t, address, "fast/", lease.Efficiency)
	code, answer := post(t, address, "/v1/acquire", `{"resource":"fast/paused","ttl":"2s"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	require.Contains(t, answer["message"], "on the move")
	require.Equal(t, http.StatusOK, <-moved)
	_, granted := post(t, address, "/v1/acquire", `{"resource":"fast/paused"}`)
	require.Equal(t, "correctness", granted["mode"], granted)
}
