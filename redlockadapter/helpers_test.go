package redlockadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// patience ends a test that hangs. It is no measure of speed.
const patience = time.Minute

// slowNode is how long a node may take on a busy machine.
const slowNode = 500 * time.Millisecond

func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// fleet is a set of Redis servers under test.
type fleet struct {
	servers []*testserver.RedisServer
	config  redlockadapter.Config
}

// startFleet starts n servers and, unless told otherwise, initialises them.
func startFleet(t testing.TB, n int, options ...testserver.RedisOption) *fleet {
	t.Helper()
	f := &fleet{config: redlockadapter.Config{MaxTTL: 10 * time.Second, NodeTimeout: slowNode}}
	for range n {
		s := testserver.Redis(t, options...)
		f.servers = append(f.servers, s)
		f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: s.Addr})
	}
	return f
}

// settings are the config, with what must fit a MaxTTL that was set later.
func (f *fleet) settings() redlockadapter.Config {
	c := f.config
	c.NodeTimeout = min(c.NodeTimeout, c.MaxTTL)
	return c
}

func (f *fleet) init(t testing.TB) *fleet {
	t.Helper()
	require.NoError(t, redlockadapter.Init(patient(t), f.settings(), fencing.None))
	return f
}

// backend is one more process that uses the fleet.
func (f *fleet) backend(t testing.TB) *redlockadapter.Backend {
	t.Helper()
	b, err := redlockadapter.New(patient(t), f.settings())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// session opens a session on b.
func open(t testing.TB, b lease.Backend, ttl time.Duration) lease.Session {
	t.Helper()
	s, err := b.Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: ttl, Clock: lease.SystemClock()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func request(nonce lease.Nonce, resource fencing.Resource) lease.Request {
	return lease.Request{Nonce: nonce, Resources: []fencing.Resource{resource}, Holder: "test"}
}
