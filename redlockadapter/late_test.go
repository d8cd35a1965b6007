package redlockadapter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

func cutAddr(addr string) (host, port string, err error) { return net.SplitHostPort(addr) }

// fakeTime is what to preload to move a server's clock. The C library comes
// with it, so that the server takes its allocator: libfaketime and jemalloc call
// each other in circles.
func fakeTime(t *testing.T) string {
	t.Helper()
	library, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	require.NotEmpty(t, library, "install libfaketime (Debian: apt-get install faketime)")
	libc, _ := filepath.Glob("/lib/*/libc.so.6")
	require.NotEmpty(t, libc)
	return library[0] + ":" + libc[0]
}

func infoField(t *testing.T, c *redis.Client, name string) string {
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

// proxy stands between a backend and a node. Once told to, it swallows the
// answers to scripts and hangs up instead.
type proxy struct {
	addr    string
	swallow atomic.Bool
	carried atomic.Int64 // scripts that reached the node; the text of a rare one is sent with it
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	p := &proxy{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(conn, to)
		}
	}()
	return p
}

func (p *proxy) carry(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	var hangUp atomic.Bool
	go func() {
		defer client.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			if err != nil || hangUp.Load() {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if scripts := bytes.Count(buf[:n], []byte("evalsha")) + bytes.Count(buf[:n], []byte("-- floor:")); scripts > 0 && p.swallow.Load() {
			hangUp.Store(true)
			p.carried.Add(int64(scripts))
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A client that sends a script again by itself may have a copy arrive after the
// release that followed the first one's answer.
func TestScriptsAreSentOnce(t *testing.T) {
	f := startFleet(t, 1).init(t)
	p := newProxy(t, f.servers[0].Addr)
	f.config.Nodes[0] = &redis.Options{Addr: p.addr}
	b := f.backend(t)
	s := open(t, b, time.Second)
	p.swallow.Store(true)
	_, err := s.Acquire(patient(t), request(1, "a"))
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.EqualValues(t, 1, p.carried.Load(), "the acquire reached the node once")
	p.carried.Store(0)
	require.ErrorIs(t, b.RaiseFloor(patient(t), 5), lease.ErrUnavailable)
	require.EqualValues(t, 1, p.carried.Load(), "so do scripts that are sent with their text")
}

func TestTombstoneRefusesALateAcquire(t *testing.T) {
	server := testserver.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer c.Close()
	run := func(name string, args ...any) string {
		text, err := redlockadapter.Script(name)
		require.NoError(t, err)
		reply, err := c.Eval(context.Background(), text, []string{"node"}, args...).Result()
		require.NoError(t, err)
		return fmt.Sprint(reply)
	}
	require.NoError(t, c.HSet(context.Background(), "node", "state", "1 0 7 0").Err())
	acquire := func(nonce string) string { return run("acquire", 1, 100000, ":a", nonce+"\ninfo") }
	run("release", "*1 100000 none", ":a", "1\ninfo")
	require.Equal(t, "ended", acquire("1"))
	require.Equal(t, "8", acquire("2"))
	require.Equal(t, "8", acquire("2"), "asked twice, the same answer")
	run("release", ":a", "1\ninfo")
	require.Contains(t, acquire("3"), "held", "a release of another attempt frees nothing")
	require.Equal(t, "ended", run("renew", "1 100000 8", ":a", "1\ninfo"))
}

// What a paused node was asked is carried out when it goes on. Nothing of an
// attempt that was given up meanwhile may stay.
func TestPausedNodeKeepsNothingOfAnEndedAttempt(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL = 20 * time.Second
	f.init(t)
	s := open(t, f.backend(t), 20*time.Second)
	c := redis.NewClient(f.config.Nodes[2])
	defer c.Close()
	for nonce := lease.Nonce(1); nonce <= 5; nonce++ {
		f.servers[2].Pause()
		_, err := s.Acquire(patient(t), request(nonce, "a"))
		f.servers[2].Resume()
		require.NoError(t, err)
		require.NoError(t, s.Release(patient(t), nonce))
		require.Eventually(t, func() bool {
			lock, err := c.HGet(patient(t), hashOf(t, c), ":a").Result()
			return err == nil && !strings.Contains(lock, " ") || errors.Is(err, redis.Nil)
		}, 10*time.Second, time.Millisecond, "well before its TTL")
	}
}

// What was released because nobody answered can be asked for again: the
// tombstones are those of the first try.
func TestSameNonceAgainAfterAnOutage(t *testing.T) {
	f := startFleet(t, 3).init(t)
	s := open(t, f.backend(t), 2*time.Second)
	_, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	require.NoError(t, s.Release(patient(t), 1))
	for _, server := range f.servers {
		server.Pause()
	}
	_, err = s.Acquire(patient(t), request(2, "a"))
	for _, server := range f.servers {
		server.Resume()
	}
	require.ErrorIs(t, err, lease.ErrUnavailable)
	var clients []*redis.Client
	for _, node := range f.config.Nodes {
		c := redis.NewClient(node)
		defer c.Close()
		clients = append(clients, c)
	}
	require.Eventually(t, func() bool {
		with := 0
		for _, c := range clients {
			if tombs, err := c.Keys(patient(t), "{leased}:tomb:*").Result(); err == nil && len(tombs) > 0 {
				with++
			}
		}
		return with >= 2
	}, patience, 10*time.Millisecond, "a majority of tombstones, on whichever nodes")
	require.Eventually(t, func() bool {
		_, err := s.Acquire(patient(t), request(2, "a"))
		return err == nil
	}, 20*time.Second, time.Millisecond, "well before a tombstone ends")
}

// moveClock sets a node's clock off by some time, under way.
func moveClock(t *testing.T, file, by string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+".new", []byte(by+"\n"), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func TestTokensHoldWhenAClockJumps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "time")
	moveClock(t, file, "+0")
	f := startFleet(t, 2).withOne(t, testserver.RedisEnv("LD_PRELOAD", fakeTime(t)), testserver.RedisEnv("FAKETIME_TIMESTAMP_FILE", file),
		testserver.RedisEnv("FAKETIME_NO_CACHE", "1"), testserver.RedisEnv("FAKETIME_DONT_FAKE_MONOTONIC", "1"))
	f.init(t)
	b, other := f.backend(t), f.backend(t)
	takers := []*taker{newTaker(t, b), newTaker(t, other)}
	last := takers[0].take()
	for _, by := range []string{"+3600", "-3600", "+0"} {
		moveClock(t, file, by)
		seconds, _ := strconv.Atoi(by)
		require.Eventually(t, func() bool {
			skew := b.NodeStatuses(patient(t))[2].Skew
			return (skew - time.Duration(seconds)*time.Second).Abs() < time.Minute
		}, patience, time.Millisecond, "the node's clock has moved")
		for i := range 40 {
			k := takers[i%2]
			k.last = last
			last = k.take()
		}
	}
}

func (f *fleet) withOne(t *testing.T, options ...testserver.RedisOption) *fleet {
	t.Helper()
	one := startFleet(t, 1, options...)
	f.servers, f.config.Nodes = append(f.servers, one.servers...), append(f.config.Nodes, one.config.Nodes...)
	return f
}
