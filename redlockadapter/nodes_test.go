package redlockadapter_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// taker acquires and releases one lock again and again, and holds every token
// against the one before.
type taker struct {
	t       *testing.T
	session lease.Session
	nonce   lease.Nonce
	last    fencing.Token
}

func newTaker(t *testing.T, b lease.Backend) *taker {
	return &taker{t: t, session: open(t, b, 200*time.Millisecond)}
}

// take is one more grant, however long it takes.
func (k *taker) take() fencing.Token {
	k.t.Helper()
	var grant lease.Grant
	require.Eventually(k.t, func() bool {
		k.nonce++
		r := request(k.nonce, "taken")
		r.Wait = true
		var err error
		grant, err = k.session.Acquire(patient(k.t), r)
		return err == nil
	}, patience, time.Millisecond)
	require.True(k.t, grant.Token.Newer(k.last), "%d after %d", grant.Token, k.last)
	k.last = grant.Token
	_ = k.session.Release(patient(k.t), k.nonce)
	return grant.Token
}

func healthy(b *redlockadapter.Backend) bool {
	for _, s := range b.NodeStatuses(context.Background()) {
		if s.Err != nil || s.Empty {
			return false
		}
	}
	return true
}

func TestEmptiedNodeRejoinsByItself(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = 500 * time.Millisecond
	f.init(t)
	b := f.backend(t)
	k := newTaker(t, b)
	for range 10 {
		k.take()
	}
	for i, server := range f.servers {
		epoch, last := b.Epoch(), k.last
		require.NoError(t, server.Wipe())
		require.NoError(t, server.Start())
		for !healthy(b) {
			k.take()
		}
		status := b.NodeStatuses(patient(t))[i]
		require.Greater(t, status.Epoch, epoch, "it comes back in a new epoch")
		require.GreaterOrEqual(t, status.Floor, last, "above every token from before")
		k.take()
		require.GreaterOrEqual(t, b.Epoch(), status.Epoch)
	}
}

func TestQuarantineIsVisible(t *testing.T) {
	f := startFleet(t, 3).init(t)
	b := f.backend(t)
	require.NoError(t, f.servers[1].Wipe())
	require.NoError(t, f.servers[1].Start())
	require.Eventually(t, func() bool {
		s := b.NodeStatuses(patient(t))[1]
		return s.Err == nil && s.Empty && s.Quarantine > 0 && s.Quarantine <= f.config.MaxTTL
	}, patience, 10*time.Millisecond)
	newTaker(t, b).take()
}

// The quarantine is that of the process whose leases last longest, also where
// another one brings the node back.
func TestQuarantineIsTheLongestOfAll(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = time.Minute
	f.init(t)
	newTaker(t, f.backend(t)).take()
	f.config.MaxTTL = 300 * time.Millisecond
	b := f.backend(t)
	require.NoError(t, f.servers[1].Wipe())
	require.NoError(t, f.servers[1].Start())
	var left time.Duration
	require.Eventually(t, func() bool {
		s := b.NodeStatuses(patient(t))[1]
		left = max(left, s.Quarantine)
		return s.Err == nil && (s.Empty || s.Max > 0) // it is kept out, or it is back
	}, patience, time.Millisecond)
	require.Greater(t, left, 10*time.Second)
}

func TestTooFewNodesWithDataNeedAnOperator(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = 300 * time.Millisecond
	b := f.backend(t)
	s := open(t, b, 200*time.Millisecond)
	refused := func(nonce lease.Nonce) {
		t.Helper()
		require.Eventually(t, func() bool { b.NodeStatuses(patient(t)); return b.Epoch() == 0 || !healthy(b) }, patience, time.Millisecond)
		_, err := s.Acquire(patient(t), request(nonce, "a"))
		require.ErrorIs(t, err, lease.ErrUnavailable)
	}
	_, err := s.Acquire(patient(t), request(1, "a"))
	require.ErrorIs(t, err, redlockadapter.ErrNoData, "never initialised")
	require.ErrorContains(t, err, "leased redis init --floor")
	require.ErrorIs(t, err, lease.ErrUnavailable)

	f.init(t)
	k := newTaker(t, b)
	k.take()
	for _, server := range f.servers[:2] {
		require.NoError(t, server.Wipe())
		require.NoError(t, server.Start())
	}
	refused(2)
	require.NoError(t, redlockadapter.Init(patient(t), f.settings(), 1000))
	require.Greater(t, k.take(), fencing.Token(1000))
	require.NoError(t, redlockadapter.Init(patient(t), f.settings(), 5000), "nothing to decide")
	require.Less(t, k.take(), fencing.Token(5000))
}

func TestUnfitNodesAreRefusedAtStart(t *testing.T) {
	plain := testserver.Redis(t)
	host, port, _ := cutAddr(plain.Addr)
	for name, c := range map[string]struct {
		options []testserver.RedisOption
		prepare func(f *fleet)
		says    string
	}{
		"replica":  {[]testserver.RedisOption{testserver.RedisConfig("replicaof", host, port)}, nil, "it is a replica of"},
		"cluster":  {[]testserver.RedisOption{testserver.RedisConfig("cluster-enabled", "yes")}, nil, "cluster mode"},
		"eviction": {[]testserver.RedisOption{testserver.RedisConfig("maxmemory-policy", "allkeys-lru")}, nil, "noeviction"},
		"clock": {[]testserver.RedisOption{testserver.RedisEnv("LD_PRELOAD", fakeTime(t)), testserver.RedisEnv("FAKETIME", "+1h"),
			testserver.RedisEnv("FAKETIME_DONT_FAKE_MONOTONIC", "1")}, nil, "clock is off by"},
		"full": {nil, func(f *fleet) {
			c := redis.NewClient(f.config.Nodes[0])
			defer c.Close()
			state := "1 0 " + strconv.Itoa(1<<53-5) + " 0"
			require.NoError(t, c.HSet(patient(t), "{leased}", "state", state, "run", infoField(t, c, "run_id")).Err())
		}, "2^53"},
		"even": {nil, func(f *fleet) { f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: plain.Addr}) }, "odd"},
		"listed twice": {nil, func(f *fleet) {
			f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: plain.Addr}, &redis.Options{Addr: plain.Addr})
		}, "listed twice"},
		"same server": {nil, func(f *fleet) {
			f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: plain.Addr}, &redis.Options{Addr: "localhost:" + port})
		}, "same server"},
		"nobody there": {nil, func(f *fleet) { f.servers[0].Stop() }, "0 of 1 Redis nodes answer"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, 1, c.options...)
			if c.prepare != nil {
				c.prepare(f)
			}
			_, err := redlockadapter.New(patient(t), f.config)
			require.ErrorContains(t, err, c.says)
		})
	}
}
