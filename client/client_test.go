package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

func TestOneClientForBothModes(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	var mu sync.Mutex
	connections := 0
	c, log := s.dial(counted(&connections, &mu), client.WithNodeTimeout(busyTimeout))
	fast, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.Equal(t, engine.Efficiency, fast.Mode())
	slow, err := c.Acquire(testserver.Context(t), "slow/a")
	require.NoError(t, err)
	require.Equal(t, engine.Correctness, slow.Mode())
	require.NoError(t, fast.Renew(testserver.Context(t)))
	require.NoError(t, slow.Renew(testserver.Context(t)))
	mu.Lock()
	require.GreaterOrEqual(t, connections, 3, "the client connects to Redis directly")
	mu.Unlock()

	other, _ := s.dial(client.WithoutRedis())
	for _, name := range []fencing.Resource{"fast/a", "slow/a"} {
		_, err = other.TryAcquire(testserver.Context(t), name)
		require.ErrorIs(t, err, lease.ErrHeld)
		status, inspectErr := other.Inspect(testserver.Context(t), name)
		require.NoError(t, inspectErr)
		require.Len(t, status.Holders, 1)
	}
	var held *lease.HeldError
	require.ErrorAs(t, err, &held, "in correctness mode")
	require.Equal(t, fencing.Resource("slow/a"), held.Resource)
	require.Equal(t, slow.Token(), held.By.Token)
	require.NotEmpty(t, held.By.Holder)
	require.Equal(t, 1, held.Position, "nobody waits")
	_, err = c.Acquire(testserver.Context(t), "fast/a", lease.WithMode(engine.Correctness))
	require.ErrorIs(t, err, lease.ErrModeMismatch)
	_, err = c.Acquire(testserver.Context(t), "fast/a", lease.WithShared())
	require.ErrorIs(t, err, lease.ErrUnsupported)
	require.ErrorContains(t, err, "correctness")
	_, err = c.Acquire(testserver.Context(t), "fast/a", lease.WithSet("slow/a"))
	require.ErrorIs(t, err, lease.ErrInvalid)

	require.NoError(t, other.Break(testserver.Context(t), "fast/a", fast.Token()))
	require.NoError(t, other.Break(testserver.Context(t), "slow/a", slow.Token()))
	require.ErrorIs(t, other.Break(testserver.Context(t), "fast/a", fast.Token()), lease.ErrNotHeld)
	next, err := other.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.True(t, next.Token().Newer(fast.Token()))
	<-slow.Done()
	require.ErrorIs(t, fast.Renew(testserver.Context(t)), lease.ErrLost, "the nodes report the loss")
	require.ErrorIs(t, fast.Err(), lease.ErrTaken)
	require.Zero(t, log.count("level=WARN"))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		mode    engine.Mode
		options []client.Option
	}{
		{"correctness", engine.Correctness, nil},
		{"efficiency", engine.Efficiency, []client.Option{client.WithNodeTimeout(busyTimeout)}},
		{"efficiency through the service", engine.Efficiency, []client.Option{client.WithoutRedis()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startService(t, 1)
			s.setPolicy(engine.Policy{Prefix: "leasetest/", Mode: tt.mode}, true)
			s.awaitMigrations()
			subject := leasetest.Subject{Mode: tt.mode, TTL: 20 * time.Second, FIFO: tt.mode == engine.Correctness,
				Sessionless: tt.mode == engine.Efficiency}
			if tt.mode == engine.Efficiency {
				subject.Unsupported = []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits}
			}
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				subject := subject
				subject.Backend = func() engine.Backend { return backend(t, s, tt.options...) }
				return subject
			}, leasetest.InParallel())
		})
	}
}

// backend returns the engine.Backend of a client.
func backend(t *testing.T, s *service, options ...client.Option) engine.Backend {
	t.Helper()
	b, done, err := client.DialBackend(testserver.Context(t), s.endpoints(), options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, done(context.Background())) })
	return b
}

// TestRedisUnreachable checks that locks in efficiency mode go through the service, and
// that the client logs it once.
func TestRedisUnreachable(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	c, log := s.dial(cutOff)
	for range 20 {
		l, err := c.Acquire(testserver.Context(t), "fast/a")
		require.NoError(t, err)
		require.Equal(t, engine.Efficiency, l.Mode())
		require.NoError(t, l.Renew(testserver.Context(t)))
		require.NoError(t, l.Release(testserver.Context(t)))
	}
	require.Equal(t, 1, log.count("go through the service"))
	require.Equal(t, 1, log.count("level=WARN"))
}

// TestRedisRejectsTheClient checks the same for nodes that do not accept the user.
func TestRedisRejectsTheClient(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	for _, server := range s.redis {
		admin := redis.NewClient(&redis.Options{Addr: server.Addr})
		require.NoError(t, admin.ACLSetUser(testserver.Context(t), "nobody", "on", ">x", "-@all", "+auth", "+hello").Err())
		require.NoError(t, admin.Close())
	}
	c, log := s.dial(client.WithRedis(func(string) *redis.Options {
		return &redis.Options{Username: "nobody", Password: "x"}
	}))
	l, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.NoError(t, l.Release(testserver.Context(t)))
	require.Equal(t, 1, log.count("go through the service"))
}

func TestPasswordIsNotSentInClearText(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	s.setFleet(engine.Fleet{Namespace: "test", Addresses: []string{"192.0.2.1:6379"}, MaxTTL: time.Minute}, true)
	testserver.Eventually(t, "the fleet has changed", func() bool {
		return len(s.members[0].node.Topology().Fleet.Addresses) == 1
	})
	password := client.WithRedis(func(string) *redis.Options { return &redis.Options{Password: "secret"} })
	_, err := client.Dial(testserver.Context(t), s.endpoints(), client.WithLogger(quiet), password)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "192.0.2.1:6379")
	require.ErrorContains(t, err, "WithRedisInsecure")
	require.NotContains(t, err.Error(), "secret")
	s.dial(password, client.WithRedisInsecure())
	s.dial(password, client.WithoutRedis())
}

// A program that has options for known Redis nodes only continues through the service when the fleet gets others.
func TestNewRedisNodeWithoutOptions(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	known := map[string]*redis.Options{}
	for _, r := range s.redis {
		known[r.Addr] = &redis.Options{}
	}
	c, log := s.dial(client.WithRedisInsecure(), client.WithRedis(func(address string) *redis.Options {
		return known[address]
	}))
	s.setFleet(fleetOf(startRedis(t, 3)), false)
	testserver.Eventually(t, "the client knows the new fleet", func() bool { return log.count("returned nil") == 1 })
	l, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.NoError(t, l.Release(testserver.Context(t)))
}

// TestPolicyChangeReachesTheClient checks that a client uses a changed policy without
// being restarted.
func TestPolicyChangeReachesTheClient(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	c, _ := s.dial()
	for _, name := range []fencing.Resource{"fast/a", "slow/a"} {
		prefix, mode := string(name[:5]), engine.Correctness
		if prefix == "fast/" {
			mode = engine.Efficiency
		}
		s.setPolicy(engine.Policy{Prefix: prefix, Mode: mode, TTL: 50 * time.Second, Drift: 5 * time.Second}, false)
		testserver.Eventually(t, "a lease of 45 seconds", func() bool {
			l, err := c.Acquire(testserver.Context(t), name)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Release(testserver.Context(t))) }()
			left := time.Until(l.Deadline())
			return left > 40*time.Second && left <= 45*time.Second
		})
	}
}

// stuckMember follows no change of the topology, such as a member that is cut off from the others.
type stuckMember struct {
	pb.UnimplementedPolicyServiceServer
	topology engine.Topology
	watchers atomic.Int32
}

func (m *stuckMember) WatchTopology(_ *pb.WatchTopologyRequest, stream pb.PolicyService_WatchTopologyServer) error {
	m.watchers.Add(1)
	defer m.watchers.Add(-1)
	if err := stream.Send(wire.FromTopology(m.topology)); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// TestStuckMember checks that a client that only holds a lease follows another member if the Redis nodes refuse its
// topology.
func TestStuckMember(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	stuck := &stuckMember{topology: s.members[0].node.Topology()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serving := grpc.NewServer()
	pb.RegisterPolicyServiceServer(serving, stuck)
	go func() { _ = serving.Serve(listener) }()
	t.Cleanup(serving.Stop)

	var c *lease.Client
	for stuck.watchers.Load() == 0 { // a client begins with any member
		if c != nil {
			require.NoError(t, c.Close(testserver.Context(t)))
		}
		c, err = client.Dial(testserver.Context(t), append(s.endpoints(), listener.Addr().String()), client.WithLogger(quiet))
		require.NoError(t, err)
	}
	held, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.NotZero(t, stuck.watchers.Load())
	s.setPolicy(engine.Policy{Prefix: "other/", Mode: engine.Efficiency, TTL: ttl}, false)
	other, _ := s.dial()
	testserver.Eventually(t, "the nodes have seen the new version", func() bool {
		l, err := other.Acquire(testserver.Context(t), "fast/b")
		require.NoError(t, err)
		require.NoError(t, l.Release(testserver.Context(t)))
		return errors.Is(held.Renew(testserver.Context(t)), engine.ErrVersion) || stuck.watchers.Load() == 0
	})
	testserver.Eventually(t, "a renewal", func() bool { return held.Renew(testserver.Context(t)) == nil })
	require.NoError(t, held.Release(testserver.Context(t)))
	require.NoError(t, c.Close(testserver.Context(t)))
}

// TestWithoutALeader checks that locks in efficiency mode work without a leader, both
// directly and through the member that is left, and that leases are renewed.
func TestWithoutALeader(t *testing.T) {
	t.Parallel()
	s := startService(t, 2)
	direct, through := s.open(short), s.open(short, client.WithoutRedis())
	t.Cleanup(func() { // the service cannot confirm the end of the lease in correctness mode
		require.Error(t, direct.Close(testserver.Context(t)))
		require.NoError(t, through.Close(testserver.Context(t)))
	})
	held, err := direct.Acquire(testserver.Context(t), "fast/held")
	require.NoError(t, err)
	_, err = direct.Acquire(testserver.Context(t), "slow/held")
	require.NoError(t, err)
	s.members[0].stop(t)
	left := s.members[1].node
	testserver.Eventually(t, "no leader", func() bool { return !left.Leads() && left.Topology().Version > 0 })
	last := fencing.None
	for range 10 {
		for _, c := range []*lease.Client{direct, through} {
			l, err := c.Acquire(testserver.Context(t), "fast/a")
			require.NoError(t, err)
			require.True(t, l.Token().Newer(last))
			last = l.Token()
			require.NoError(t, l.Release(testserver.Context(t)))
		}
	}
	before := held.Deadline()
	require.NoError(t, held.Renew(testserver.Context(t)), "the session in correctness mode does not matter")
	require.True(t, held.Deadline().After(before))
	_, err = direct.TryAcquire(testserver.Context(t), "slow/a")
	require.True(t, errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUncertain), "%v", err)
}

// TestRedisStopsAnswering cuts the client alone off from Redis: acquires and renewals
// then go through the service.
func TestRedisStopsAnswering(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	connections := &breaker{}
	c, log := s.dial(connections.option())
	held, err := c.Acquire(testserver.Context(t), "fast/held")
	require.NoError(t, err)
	connections.cut()
	l, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	require.NoError(t, held.Renew(testserver.Context(t)))
	require.NoError(t, l.Release(testserver.Context(t)))
	require.NoError(t, held.Release(testserver.Context(t)))
	require.Equal(t, 1, log.count("go through the service"))
}

// TestNewFleet checks that leases of the old fleet are lost, that a waiting acquire
// continues on the new fleet, and that tokens grow.
func TestNewFleet(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	c, _ := s.dial()
	held, err := c.Acquire(testserver.Context(t), "fast/a")
	require.NoError(t, err)
	waiting := start(t, c, "fast/a")
	fleet := startRedis(t, 3)
	s.setFleet(fleetOf(fleet), false)
	<-held.Done()
	require.ErrorIs(t, held.Err(), lease.ErrTaken)
	require.ErrorContains(t, held.Err(), "fleet")
	next := waiting.granted()
	require.True(t, next.Token().Newer(held.Token()))
	require.NoError(t, next.Release(testserver.Context(t)))
	require.True(t, usesRedis(t, fleet))
}

// usesRedis reports whether a quorum of the servers knows the lock "fast/a".
func usesRedis(t *testing.T, servers []*testserver.RedisServer) bool {
	t.Helper()
	known := 0
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		keys, err := c.Keys(testserver.Context(t), "*lock:fast/a").Result()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		known += min(1, len(keys))
	}
	return known > len(servers)/2
}

func TestDialErrors(t *testing.T) {
	t.Parallel()
	_, err := client.Dial(testserver.Context(t), nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = client.Dial(testserver.Context(t), []string{"127.0.0.1:1"}, client.WithTimeout(100*time.Millisecond))
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Dial(ctx, []string{"127.0.0.1:1"})
	require.ErrorIs(t, err, context.Canceled)
	for _, option := range []client.Option{client.WithLogger(nil), client.WithRedis(nil), client.WithTLS(nil),
		client.WithSecret("short"), client.WithSecret(""), client.WithTimeout(0)} {
		_, err = client.Dial(testserver.Context(t), []string{"127.0.0.1:1"}, option)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
}
