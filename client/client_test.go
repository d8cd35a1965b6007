package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/remote"
)

func TestOneClientForBothModes(t *testing.T) {
	s := startService(t, 1)
	var mu sync.Mutex
	connections := 0
	c, log := s.dial(counted(&connections, &mu))
	fast, err := c.Acquire(patient(t), "fast/a")
	require.NoError(t, err)
	require.Equal(t, engine.Efficiency, fast.Mode())
	slow, err := c.Acquire(patient(t), "slow/a")
	require.NoError(t, err)
	require.Equal(t, engine.Correctness, slow.Mode())
	require.NoError(t, fast.Renew(patient(t)))
	require.NoError(t, slow.Renew(patient(t)))
	mu.Lock()
	require.GreaterOrEqual(t, connections, 3, "it has connected to Redis itself")
	mu.Unlock()

	other, _ := s.dial(client.WithoutRedis())
	for _, name := range []fencing.Resource{"fast/a", "slow/a"} {
		_, err = other.TryAcquire(patient(t), name)
		require.ErrorIs(t, err, engine.ErrHeld)
		status, err := other.Inspect(patient(t), name)
		require.NoError(t, err)
		require.Len(t, status.Holders, 1)
	}
	_, err = c.Acquire(patient(t), "fast/a", lease.WithMode(engine.Correctness))
	require.ErrorIs(t, err, engine.ErrModeMismatch)
	_, err = c.Acquire(patient(t), "fast/a", lease.WithShared())
	require.ErrorIs(t, err, engine.ErrUnsupported)
	require.ErrorContains(t, err, "correctness")
	_, err = c.Acquire(patient(t), "fast/a", lease.WithSet("slow/a"))
	require.ErrorIs(t, err, engine.ErrInvalid)

	require.NoError(t, other.Break(patient(t), "fast/a", fast.Token()))
	require.NoError(t, other.Break(patient(t), "slow/a", slow.Token()))
	require.ErrorIs(t, other.Break(patient(t), "fast/a", fast.Token()), engine.ErrNotHeld)
	next, err := other.Acquire(patient(t), "fast/a")
	require.NoError(t, err)
	require.True(t, next.Token().Newer(fast.Token()))
	<-slow.Done()
	require.ErrorIs(t, fast.Renew(patient(t)), engine.ErrLost, "the nodes say so")
	require.ErrorIs(t, fast.Err(), engine.ErrTaken)
	require.Zero(t, log.count("level=WARN"))
}

func TestConformance(t *testing.T) {
	s := startService(t, 1)
	s.setPolicy(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, true) // the suite has a ttl of its own
	for _, tt := range []struct {
		name    string
		mode    engine.Mode
		options []client.Option
	}{
		{"correctness", engine.Correctness, nil},
		{"efficiency", engine.Efficiency, nil},
		{"efficiency through the service", engine.Efficiency, []client.Option{client.WithoutRedis()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.setPolicy(engine.Policy{Prefix: "leasetest/", Mode: tt.mode}, true)
			s.settled()
			subject := leasetest.Subject{Mode: tt.mode, TTL: 2 * time.Second, FIFO: tt.mode == engine.Correctness}
			if tt.mode == engine.Efficiency {
				subject.Unsupported = []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits}
			}
			leasetest.Run(t, func(t *testing.T) leasetest.Subject {
				subject.Backend = func() engine.Backend { return backend(t, s, tt.options...) }
				return subject
			})
		})
	}
}

// backend is the engine.Backend below a client.
func backend(t *testing.T, s *service, options ...client.Option) engine.Backend {
	t.Helper()
	b, done, err := client.DialBackend(patient(t), s.endpoints(), options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, done(context.Background())) })
	return b
}

// TestRedisOutOfReach: locks in efficiency mode go through the service, and that is
// said once.
func TestRedisOutOfReach(t *testing.T) {
	s := startService(t, 1)
	c, log := s.dial(cutOff)
	for range 20 {
		l, err := c.Acquire(patient(t), "fast/a")
		require.NoError(t, err)
		require.Equal(t, engine.Efficiency, l.Mode())
		require.NoError(t, l.Renew(patient(t)))
		require.NoError(t, l.Release(patient(t)))
	}
	require.Equal(t, 1, log.count("go through the service"))
	require.Equal(t, 1, log.count("level=WARN"))
}

func TestRedisThatRefuses(t *testing.T) {
	s := startService(t, 1)
	for _, server := range s.redis {
		admin := redis.NewClient(&redis.Options{Addr: server.Addr})
		require.NoError(t, admin.ACLSetUser(patient(t), "nobody", "on", ">x", "-@all", "+auth", "+hello").Err())
		require.NoError(t, admin.Close())
	}
	c, log := s.dial(client.WithRedis(func(string) *redis.Options { return &redis.Options{Username: "nobody", Password: "x"} }))
	l, err := c.Acquire(patient(t), "fast/a")
	require.NoError(t, err)
	require.NoError(t, l.Release(patient(t)))
	require.Equal(t, 1, log.count("go through the service"))
}

func TestAPasswordIsNotSentInClear(t *testing.T) {
	s := startService(t, 1)
	_, err := s.leader().SetFleet(patient(t), engine.Fleet{Namespace: "test", Addresses: []string{"192.0.2.1:6379"}, MaxTTL: time.Minute}, 0, true, true)
	require.NoError(t, err)
	eventually(t, "the fleet has changed", func() bool { return len(s.leader().Topology().Fleet.Addresses) == 1 })
	password := client.WithRedis(func(string) *redis.Options { return &redis.Options{Password: "secret"} })
	_, err = client.Dial(patient(t), s.endpoints(), client.WithLogger(quiet), password)
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, "192.0.2.1:6379")
	require.ErrorContains(t, err, "WithRedisInsecure")
	require.NotContains(t, err.Error(), "secret")
	s.dial(password, client.WithRedisInsecure())
	s.dial(password, client.WithoutRedis())
}

// TestAPolicyReachesTheClient by itself.
func TestAPolicyReachesTheClient(t *testing.T) {
	s := startService(t, 1)
	c, _ := s.dial()
	for _, name := range []fencing.Resource{"fast/a", "slow/a"} {
		prefix, mode := string(name[:5]), engine.Correctness
		if prefix == "fast/" {
			mode = engine.Efficiency
		}
		s.setPolicy(engine.Policy{Prefix: prefix, Mode: mode, TTL: 50 * time.Second, Drift: 5 * time.Second}, false)
		eventually(t, "a lease of 45 seconds", func() bool {
			l, err := c.Acquire(patient(t), name)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Release(patient(t))) }()
			left := time.Until(l.Deadline())
			return left > 40*time.Second && left <= 45*time.Second
		})
	}
}

// TestWithoutALeader: locks in efficiency mode go on, straight to Redis and through
// the member that is left; leases are renewed.
func TestWithoutALeader(t *testing.T) {
	s := startService(t, 2)
	direct, through := s.open(short), s.open(short, client.WithoutRedis())
	t.Cleanup(func() { // the service cannot be told of the end of the lease in correctness mode
		require.Error(t, direct.Close(patient(t)))
		require.NoError(t, through.Close(patient(t)))
	})
	held, err := direct.Acquire(patient(t), "fast/held")
	require.NoError(t, err)
	_, err = direct.Acquire(patient(t), "slow/held")
	require.NoError(t, err)
	s.members[0].stop(t)
	left := s.members[1].node
	eventually(t, "no leader", func() bool { return !left.Leads() && left.Topology().Version > 0 })
	last := fencing.None
	for range 10 {
		for _, c := range []*lease.Client{direct, through} {
			l, err := c.Acquire(patient(t), "fast/a")
			require.NoError(t, err)
			require.True(t, l.Token().Newer(last))
			last = l.Token()
			require.NoError(t, l.Release(patient(t)))
		}
	}
	before := held.Deadline()
	require.NoError(t, held.Renew(patient(t)), "the other session of the client does not matter")
	require.True(t, held.Deadline().After(before))
	_, err = direct.TryAcquire(patient(t), "slow/a")
	require.True(t, errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain), "%v", err)
}

// TestRedisStopsAnswering to the client alone: acquires and renewals go through the
// service meanwhile.
func TestRedisStopsAnswering(t *testing.T) {
	s := startService(t, 1)
	gate := newGate()
	c, log := s.dial(gate.option())
	held, err := c.Acquire(patient(t), "fast/held")
	require.NoError(t, err)
	gate.shut()
	l, err := c.Acquire(patient(t), "fast/a")
	require.NoError(t, err)
	require.NoError(t, held.Renew(patient(t)))
	require.NoError(t, l.Release(patient(t)))
	require.NoError(t, held.Release(patient(t)))
	require.Equal(t, 1, log.count("go through the service"))
}

// TestANewFleet: leases of the old fleet are lost, a waiting acquire goes on, and
// tokens grow.
func TestANewFleet(t *testing.T) {
	s := startService(t, 1)
	c, _ := s.dial()
	held, err := c.Acquire(patient(t), "fast/a")
	require.NoError(t, err)
	waiting := start(t, c, "fast/a")
	fleet := startRedis(t, 3)
	_, err = s.leader().SetFleet(patient(t), fleetOf(fleet), 0, true, false)
	require.NoError(t, err)
	<-held.Done()
	require.ErrorIs(t, held.Err(), engine.ErrTaken)
	require.ErrorContains(t, held.Err(), "fleet")
	next := waiting.granted()
	require.True(t, next.Token().Newer(held.Token()))
	require.NoError(t, next.Release(patient(t)))
	require.True(t, usesRedis(t, fleet), "straight to the new nodes")
}

// usesRedis reports whether clients other than the members have state there.
func usesRedis(t *testing.T, servers []*testserver.RedisServer) bool {
	t.Helper()
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		keys, err := c.Keys(patient(t), "*lock:fast/a").Result()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		if len(keys) == 0 {
			return false
		}
	}
	return true
}

func TestDialRefuses(t *testing.T) {
	_, err := client.Dial(patient(t), nil)
	require.ErrorIs(t, err, engine.ErrInvalid)
	_, err = client.Dial(patient(t), []string{"127.0.0.1:1"}, client.WithRemoteOptions(remote.WithTimeout(100*time.Millisecond)))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Dial(ctx, []string{"127.0.0.1:1"})
	require.ErrorIs(t, err, context.Canceled)
	for _, option := range []client.Option{client.WithLogger(nil), client.WithRedis(nil), client.WithTLS(nil), client.WithSecret("short")} {
		_, err = client.Dial(patient(t), []string{"127.0.0.1:1"}, option)
		require.ErrorIs(t, err, engine.ErrInvalid)
	}
}
