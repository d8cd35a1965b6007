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
	// testTimeout ends a test that hangs. It does not measure speed.
	testTimeout = 2 * time.Minute
	// busyTimeout is the NodeTimeout of tests that may run on a busy machine.
	busyTimeout = 5 * time.Second
	// longTTL is the TTL of leases that must not expire during a test.
	longTTL = 30 * time.Second
	// shortQuarantine is the quarantine in tests that wait until lost nodes vote again.
	// No test depends on its length.
	shortQuarantine = 2 * time.Second
)

// Held abbreviates engine.Held.
type Held = engine.Held

// The hashes by which a node knows scripts.
var acquireSHA, releaseSHA, sweepSHA = scriptSHA("acquire"), scriptSHA("release"), scriptSHA("sweep")

func scriptSHA(name string) string {
	text, err := scripts.Text(name)
	if err != nil {
		panic(err)
	}
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// waitFor returns when the condition holds. Unlike require.Eventually it calls the
// condition on the test's goroutine, so that the condition may end the test.
func waitFor(t testing.TB, condition func() bool, about ...any) {
	t.Helper()
	limit := time.After(testTimeout)
	for !condition() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			require.FailNow(t, "condition was not met in time", about...)
		}
	}
}

// fleet is a set of Redis servers under test.
type fleet struct {
	servers []*testserver.RedisServer
	config  redlockadapter.Config
}

// startFleet starts n servers without state.
func startFleet(t testing.TB, n int, options ...testserver.RedisOption) *fleet {
	t.Helper()
	f := &fleet{config: redlockadapter.Config{MaxTTL: time.Minute, NodeTimeout: busyTimeout, Logger: discard()}}
	for range n {
		s := testserver.Redis(t, options...)
		f.servers = append(f.servers, s)
		f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: s.Addr})
	}
	return f
}

// withShortQuarantine sets a short quarantine, which is also the longest TTL.
func (f *fleet) withShortQuarantine() *fleet {
	f.config.MaxTTL, f.config.NodeTimeout = shortQuarantine, shortQuarantine
	return f
}

// init makes the servers voters, however long they take to answer.
func (f *fleet) init(t testing.TB) *fleet {
	t.Helper()
	waitFor(t, func() bool { return f.ready(t, redlockadapter.Init(testContext(t), f.config, fencing.None)) })
	return f
}

// ready reports whether a call succeeded. It fails the test unless the servers were
// only too slow.
func (f *fleet) ready(t testing.TB, err error) bool {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, engine.ErrUnavailable)
	}
	return err == nil
}

// subset returns a fleet of some of the nodes.
func (f *fleet) subset(nodes ...int) *fleet {
	one := &fleet{config: f.config}
	one.config.Nodes = nil
	for _, i := range nodes {
		one.servers = append(one.servers, f.servers[i])
		one.config.Nodes = append(one.config.Nodes, f.config.Nodes[i])
	}
	return one
}

// backend returns the Backend of one more process.
func (f *fleet) backend(t testing.TB) *redlockadapter.Backend {
	t.Helper()
	var b *redlockadapter.Backend
	waitFor(t, func() bool {
		var err error
		b, err = redlockadapter.New(testContext(t), f.config)
		return f.ready(t, err)
	})
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// serverOf returns the run of the server of a node.
func serverOf(t testing.TB, b *redlockadapter.Backend, node int) (server string) {
	t.Helper()
	waitFor(t, func() bool {
		server = b.NodeStatuses(testContext(t))[node].Report.Server
		return server != ""
	})
	return server
}

// client returns a client of one server.
func (f *fleet) client(t testing.TB, node int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: f.servers[node].Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// record returns the fields of a lock's record on a node, in its latest life.
func (f *fleet) record(t testing.TB, node int, resource string) map[string]string {
	t.Helper()
	c := f.client(t, node)
	life, err := c.Get(testContext(t), "{leased}:life").Result()
	require.NoError(t, err)
	fields, err := c.HGetAll(testContext(t), "{leased}:"+life+":lock:"+resource).Result()
	require.NoError(t, err)
	return fields
}

func infoField(t testing.TB, c *redis.Client, name string) string {
	t.Helper()
	info, err := c.Info(testContext(t)).Result()
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
	s, err := b.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl,
		Clock: engine.SystemClock()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// heldOf returns the lease of a grant.
func heldOf(r engine.Request, g engine.Grant, ttl time.Duration) engine.Held {
	return engine.Held{Name: g.Name, Nonce: r.Nonce, Resources: r.Resources, Token: g.Token, TTL: ttl, Holder: r.Holder}
}

func request(nonce engine.Nonce, resources ...fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: resources, Holder: "test"}
}

// locker acquires and releases one lock repeatedly, through any Backend, and checks
// that the tokens grow.
type locker struct {
	t       testing.TB
	session engine.SessionID
	ttl     time.Duration
	nonce   engine.Nonce
	last    fencing.Token
}

func newLocker(t testing.TB, config redlockadapter.Config) *locker {
	return &locker{t: t, session: engine.NewSessionID(), ttl: min(10*time.Second, config.MaxTTL)}
}

// try makes one attempt, and releases the lock.
func (k *locker) try(b *redlockadapter.Backend) (fencing.Token, error) {
	k.t.Helper()
	k.nonce++
	held, err := b.Acquire(context.Background(), k.session, k.ttl, request(k.nonce, "locker"))
	if err != nil {
		return fencing.None, err
	}
	require.True(k.t, held.Token.Newer(k.last), "token %d after %d", held.Token, k.last)
	k.last = held.Token
	_ = b.Release(context.Background(), held)
	return held.Token, nil
}

// acquire gets one grant, however long it takes.
func (k *locker) acquire(b *redlockadapter.Backend) fencing.Token {
	k.t.Helper()
	var token fencing.Token
	var err error
	waitFor(k.t, func() bool {
		token, err = k.try(b)
		return err == nil
	})
	return token
}

// acquireN gets several grants.
func (k *locker) acquireN(b *redlockadapter.Backend, n int) {
	k.t.Helper()
	for range n {
		k.acquire(b)
	}
}
