package client_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

const (
	// ttl is the TTL of leases whose expiry the tests do not wait for.
	ttl = 30 * time.Second
	// busyTimeout is the time for a request to a Redis node on a busy machine.
	busyTimeout = 3 * time.Second
)

var quiet = slog.New(slog.DiscardHandler)

// TestMain runs more tests at a time than there are processors, because the tests
// mostly wait for servers and for leases to end.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// member is one member of a service, in this process.
type member struct {
	node   *raftstore.Node
	server *server.Server
	once   sync.Once
	done   chan error
}

func startMember(t testing.TB, id string, fleet engine.Fleet, change ...func(*server.Config)) *member {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config := server.Config{Logger: quiet, Redis: fleet, RedisTimeout: busyTimeout, Version: "test",
		Raft: raftstore.Config{ID: id, Dir: t.TempDir(), Address: "127.0.0.1:0", Logger: quiet, StoreDeadline: time.Minute}}
	for _, f := range change {
		f(&config)
	}
	s, err := server.New(config, listener)
	require.NoError(t, err)
	m := &member{node: s.Node(), server: s, done: make(chan error, 1)}
	go func() { m.done <- s.Serve() }()
	t.Cleanup(func() { m.stop(t) })
	return m
}

func (m *member) stop(t testing.TB) {
	m.once.Do(func() {
		require.NoError(t, m.server.Close())
		require.NoError(t, <-m.done)
	})
}

// service is a service with both modes: locks whose names begin with "fast/" are in
// efficiency mode.
type service struct {
	testing.TB
	members []*member
	redis   []*testserver.RedisServer
}

// fleetOf returns the fleet of these servers.
func fleetOf(servers []*testserver.RedisServer) engine.Fleet {
	fleet := engine.Fleet{Namespace: "test", MaxTTL: time.Minute}
	for _, s := range servers {
		fleet.Addresses = append(fleet.Addresses, s.Addr)
	}
	return fleet
}

func startRedis(t testing.TB, n int) (servers []*testserver.RedisServer) {
	t.Helper()
	for range n {
		servers = append(servers, testserver.Redis(t))
	}
	return servers
}

func startService(t testing.TB, size int, change ...func(*server.Config)) *service {
	t.Helper()
	s := &service{TB: t, redis: startRedis(t, 3)}
	fleet := fleetOf(s.redis)
	first := startMember(t, "n1", fleet, change...)
	require.NoError(t, first.node.Bootstrap())
	s.members = []*member{first}
	testserver.Eventually(t, "a leader", first.node.Leads)
	for n := 2; n <= size; n++ {
		m := startMember(t, "n"+string(rune('0'+n)), fleet, change...)
		require.NoError(t, m.server.Join(testserver.Context(t), first.server.Address()))
		s.members = append(s.members, m)
	}
	s.setPolicy(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency, TTL: ttl}, true)
	s.awaitMigrations()
	return s
}

// atLeader makes a change at the leader, which on a busy machine may be another member than
// the first.
func (s *service) atLeader(change func(*raftstore.Node) error) {
	s.Helper()
	testserver.Eventually(s, "the leader makes a change", func() bool {
		return slices.ContainsFunc(s.members, func(m *member) bool { return change(m.node) == nil })
	})
}

func (s *service) setFleet(fleet engine.Fleet, force bool) {
	s.Helper()
	s.atLeader(func(n *raftstore.Node) error {
		_, err := n.SetFleet(testserver.Context(s), fleet, 0, true, force)
		return err
	})
}

func (s *service) endpoints() (addresses []string) {
	for _, m := range s.members {
		addresses = append(addresses, m.server.Address())
	}
	return addresses
}

func (s *service) setPolicy(p engine.Policy, now bool) {
	s.Helper()
	s.atLeader(func(n *raftstore.Node) error {
		_, err := n.SetPolicy(testserver.Context(s), p, 0, now)
		return err
	})
}

// awaitMigrations waits until no migration is under way at any member.
func (s *service) awaitMigrations() {
	s.Helper()
	for _, m := range s.members {
		testserver.Eventually(s, "no migration is under way", func() bool {
			topology := m.node.Topology()
			for _, p := range topology.Policies.All() {
				if p.Next != engine.AnyMode {
					return false
				}
			}
			return topology.Ready && topology.Version == s.members[0].node.Topology().Version
		})
	}
}

// migrate changes the mode of the locks with a prefix.
func (s *service) migrate(prefix string, to engine.Mode, now bool) {
	s.Helper()
	s.setPolicy(engine.Policy{Prefix: prefix, Mode: to, TTL: ttl}, now)
}

// lines is a log that the test reads.
type lines struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.log.String(), text)
}

// dial returns a client and its log. The client is closed at the end of the test.
func (s *service) dial(options ...client.Option) (*lease.Client, *lines) {
	s.Helper()
	log := &lines{}
	c := s.open(append([]client.Option{client.WithLogger(slog.New(slog.NewTextHandler(log, nil)))}, options...)...)
	s.Cleanup(func() {
		err := c.Close(testserver.Context(s))
		if errors.Is(err, lease.ErrUncertain) || errors.Is(err, lease.ErrUnavailable) {
			s.Logf("close: %v", err) // a loaded machine may not confirm it within the limit of Close
			return
		}
		require.NoError(s, err)
	})
	return c, log
}

// open returns a client.
func (s *service) open(options ...client.Option) *lease.Client {
	s.Helper()
	c, err := client.Dial(testserver.Context(s), s.endpoints(), append([]client.Option{client.WithLogger(quiet)},
		options...)...)
	require.NoError(s, err)
	return c
}

// counted returns an option that counts the connections to Redis.
func counted(n *int, mu *sync.Mutex) client.Option {
	return client.WithRedis(func(string) *redis.Options {
		return &redis.Options{Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			*n++
			mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
	})
}

var errCut = &net.OpError{Op: "dial", Err: net.UnknownNetworkError("cut off")}

// cutOff is the option of a client that cannot reach Redis.
var cutOff = client.WithRedis(func(string) *redis.Options {
	return &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errCut }}
})

var short = client.WithTimeout(2 * time.Second)
