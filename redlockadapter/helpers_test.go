package redlockadapter_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

const (
	// patience ends a test that hangs. It is no measure of speed.
	patience = 2 * time.Minute
	// slowNode is how long a node may take on a busy machine.
	slowNode = 2 * time.Second
	// longTTL is for leases that must not run out during a test.
	longTTL = 30 * time.Second
	// shortQuarantine is for tests that wait until lost nodes are voters again.
	// Nothing is timed against it.
	shortQuarantine = 2 * time.Second
)

// Held is a short name.
type Held = engine.Held

// acquireSHA is how a node knows acquire.lua.
var acquireSHA = scriptSHA("acquire")

func scriptSHA(name string) string {
	text, err := scripts.Text(name)
	if err != nil {
		panic(err)
	}
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// waitFor returns when the condition holds. Unlike require.Eventually it asks on
// the goroutine of the test, so that the condition may end the test.
func waitFor(t testing.TB, condition func() bool, about ...any) {
	t.Helper()
	limit := time.After(patience)
	for !condition() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			require.FailNow(t, "the condition never held", about...)
		}
	}
}

// fleet is a set of Redis servers under test.
type fleet struct {
	servers []*testserver.RedisServer
	config  redlockadapter.Config
}

// startFleet starts n servers. They have no state yet.
func startFleet(t testing.TB, n int, options ...testserver.RedisOption) *fleet {
	t.Helper()
	f := &fleet{config: redlockadapter.Config{MaxTTL: time.Minute, NodeTimeout: slowNode, Logger: discard()}}
	for range n {
		s := testserver.Redis(t, options...)
		f.servers = append(f.servers, s)
		f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: s.Addr})
	}
	return f
}

// shortLives makes lost nodes voters again soon.
func (f *fleet) shortLives() *fleet {
	f.config.MaxTTL, f.config.NodeTimeout = shortQuarantine, shortQuarantine/2
	return f
}

func (f *fleet) init(t testing.TB) *fleet {
	t.Helper()
	require.NoError(t, redlockadapter.Init(patient(t), f.config, fencing.None))
	return f
}

// only is the same configuration with some of the nodes.
func (f *fleet) only(nodes ...int) *fleet {
	one := &fleet{config: f.config}
	one.config.Nodes = nil
	for _, i := range nodes {
		one.servers = append(one.servers, f.servers[i])
		one.config.Nodes = append(one.config.Nodes, f.config.Nodes[i])
	}
	return one
}

// backend is one more process that uses the fleet.
func (f *fleet) backend(t testing.TB) *redlockadapter.Backend {
	t.Helper()
	b, err := redlockadapter.New(patient(t), f.config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// client talks to one server.
func (f *fleet) client(t testing.TB, node int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: f.servers[node].Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// records returns the fields of a lock on a node, under whichever life.
func (f *fleet) record(t testing.TB, node int, resource string) map[string]string {
	t.Helper()
	c := f.client(t, node)
	life, err := c.Get(patient(t), "{leased}:life").Result()
	require.NoError(t, err)
	fields, err := c.HGetAll(patient(t), "{leased}:"+life+":lock:"+resource).Result()
	require.NoError(t, err)
	return fields
}

func infoField(t testing.TB, c *redis.Client, name string) string {
	t.Helper()
	info, err := c.Info(patient(t)).Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// open opens a session on b.
func open(t testing.TB, b engine.Backend, ttl time.Duration) engine.Session {
	t.Helper()
	s, err := b.Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl, Clock: engine.SystemClock()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func request(nonce engine.Nonce, resources ...fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: resources, Holder: "test"}
}

// taker acquires and releases one lock again and again, through any Backend, and
// checks that tokens grow.
type taker struct {
	t       testing.TB
	session engine.SessionID
	nonce   engine.Nonce
	last    fencing.Token
}

func newTaker(t testing.TB) *taker { return &taker{t: t, session: engine.NewSessionID()} }

// try makes one attempt and releases what it gets.
func (k *taker) try(b *redlockadapter.Backend) (fencing.Token, error) {
	k.t.Helper()
	k.nonce++
	held, grant, err := b.Acquire(context.Background(), k.session, time.Second, request(k.nonce, "taken"))
	if err != nil {
		return fencing.None, err
	}
	require.True(k.t, grant.Token.Newer(k.last), "token %d after %d", grant.Token, k.last)
	k.last = grant.Token
	_ = b.Release(context.Background(), held)
	return grant.Token, nil
}

// take is one grant, however long it takes.
func (k *taker) take(b *redlockadapter.Backend) fencing.Token {
	k.t.Helper()
	var token fencing.Token
	var err error
	waitFor(k.t, func() bool {
		token, err = k.try(b)
		return err == nil
	})
	return token
}

// takeSome makes several grants.
func (k *taker) takeSome(b *redlockadapter.Backend, n int) {
	k.t.Helper()
	for range n {
		k.take(b)
	}
}
