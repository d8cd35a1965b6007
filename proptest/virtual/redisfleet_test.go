package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// quarantine is the time for which a recovered server does not vote.
const quarantine = 10 * time.Second

var errRefused = errors.New("connection refused")

// redisServer is one Redis master: miniredis with a clock of its own and the INFO fields
// that the adapter reads. Every restart is a new life, whatever data survives.
type redisServer struct {
	name       string
	number     int
	mini       *miniredis.Miniredis
	clock      *clock
	linkFaults *linkFaults
	busy       chan struct{} // held by the fault that stops or empties it

	mu    sync.Mutex
	up    bool
	lives int
	saves int // calls of BGSAVE
}

func newRedisServer(number int, seed uint64) *redisServer {
	s := &redisServer{name: fmt.Sprint("redis ", number), number: number, mini: miniredis.NewMiniRedis(),
		clock:      newClock(1),
		linkFaults: &linkFaults{random: rand.New(rand.NewPCG(seed, uint64(number)))}, busy: make(chan struct{}, 1)}
	s.mini.SetTime(s.clock.Time())
	s.mini.ClockTTL(true)
	s.start()
	return s
}

// start accepts connections.
func (s *redisServer) start() {
	conn, err := s.mini.Dial() // starts it
	if err != nil {
		panic(err)
	}
	s.mini.Server().SetPreHook(s.before)
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = true
	s.lives++
}

// stop closes all connections.
func (s *redisServer) stop() {
	s.mu.Lock()
	s.up = false
	s.mu.Unlock()
	s.mini.Close()
}

// runs reports whether the server accepts connections.
func (s *redisServer) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// before is called before every command. It sets the clock before a script: nothing else
// depends on it.
func (s *redisServer) before(c *server.Peer, command string, _ ...string) bool {
	switch {
	case command == "EVAL" || command == "EVALSHA":
		s.mini.SetTime(s.clock.Time())
	case command == "INFO":
		c.WriteBulk(s.info())
		return true
	case command == "BGSAVE":
		s.mu.Lock()
		s.saves++
		s.mu.Unlock()
		c.WriteInline("Background saving started")
		return true
	}
	return false
}

func (s *redisServer) address() string { return strings.ReplaceAll(s.name, " ", "-") + ":6379" }

func (s *redisServer) info() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("redis_version:7.4.0\r\narch_bits:64\r\nrole:master\r\nconnected_slaves:0\r\n"+
		"maxmemory_policy:noeviction\r\n"+
		"cluster_enabled:0\r\nrun_id:%s-life-%d\r\nmaster_replid:%040d\r\nrdb_last_bgsave_status:ok\r\nrdb_saves:%d\r\n",
		s.address(), s.lives, s.number+1, s.saves)
}

// dial connects a process to the server.
func (s *redisServer) dial(p *process) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return nil, errRefused
	}
	conn, err := s.mini.Dial()
	if err != nil {
		return nil, err
	}
	return connect(p, s.linkFaults, conn), nil
}

// fleet is the Redis servers of a run.
type fleet struct {
	history *history
	servers []*redisServer
	without chan struct{} // has room for each server that may lose its data
	watcher *redlockadapter.Backend
}

func startFleet(s *history, size int, seed uint64) (*fleet, error) {
	f := &fleet{history: s, without: make(chan struct{}, (size-1)/2)}
	for i := range size {
		f.servers = append(f.servers, newRedisServer(i, seed))
	}
	outsider := &process{history: s}
	if err := redlockadapter.Init(context.Background(), f.config(outsider), fencing.None); err != nil {
		return f, err
	}
	var err error
	f.watcher, err = redlockadapter.New(context.Background(), f.config(outsider))
	return f, err
}

func (f *fleet) config(p *process) redlockadapter.Config {
	c := redlockadapter.Config{MaxTTL: quarantine, MaxSkew: 1e5 * time.Hour, Clock: engine.MonotonicClock()}
	for _, s := range f.servers {
		c.Nodes = append(c.Nodes, &redis.Options{Addr: s.address(),
			Dialer: func(context.Context, string, string) (net.Conn, error) { return s.dial(p) }})
	}
	return c
}

// connect returns a backend for a process.
func (f *fleet) connect(p *process) (engine.Backend, error) {
	b, err := redlockadapter.New(context.Background(), f.config(p))
	if err != nil {
		return nil, err
	}
	p.disconnect = func() { _ = b.Close(context.Background()) } // unreleased leases expire
	return b, nil
}

// recovered waits until a server votes again.
func (f *fleet) recovered(ctx context.Context, number int) {
	for ctx.Err() == nil {
		if s := f.watcher.NodeStatuses(ctx)[number]; s.Err == nil && s.Report.Live != nil {
			return
		}
		wait(ctx, time.Second)
	}
	f.history.broken("%s was not recovered", f.servers[number].name)
}

// close stops the servers.
func (f *fleet) close() {
	if f.watcher != nil {
		_ = f.watcher.Close(context.Background())
	}
	for _, s := range f.servers {
		s.stop()
	}
}

// redisFaults are the faults of a fleet.
var redisFaults = []string{"restart", "empty", "restart-empty", "restart-old", "redis-clock-jump", "redis-clock-day",
	"redis-clock-rate", "cut", "late", "lost-replies"}

// inject injects a fault into a server, and returns when it is over.
func (f *fleet) inject(ctx context.Context, one fault) {
	number := one.target % len(f.servers)
	s := f.servers[number]
	up := s.runs()
	seen := up && one.lasts > 0
	switch one.kind {
	case "redis-clock-jump":
		by := time.Duration(one.random-50) * time.Second
		s.clock.jump(by)
		f.history.count(one, s.name, up && by != 0)
	case "redis-clock-day": // idle counters expire
		s.clock.jump(25 * time.Hour)
		f.history.count(one, s.name, up)
	case "redis-clock-rate":
		changed := s.clock.setRate(0.2 + float64(one.random)/33)
		f.history.count(one, s.name, changed && seen)
		wait(ctx, one.lasts)
		s.clock.setRate(1)
	case "cut":
		release, held := s.linkFaults.hold()
		f.history.count(one, s.name, held && seen)
		wait(ctx, one.lasts)
		release()
	case "late":
		worse := s.linkFaults.set(time.Duration(one.random)*20*time.Millisecond, false)
		f.history.count(one, s.name, worse && seen)
		wait(ctx, one.lasts)
		s.linkFaults.set(0, false)
	case "lost-replies":
		worse := s.linkFaults.set(0, true)
		f.history.count(one, s.name, worse && seen)
		wait(ctx, one.lasts)
		s.linkFaults.set(0, false)
	default:
		f.injectServer(ctx, number, one)
	}
}

// injectServer injects a fault that restarts or empties a server. At most a minority is
// without its data at a time: a standalone fleet recovers from the reports of a quorum.
func (f *fleet) injectServer(ctx context.Context, number int, one fault) {
	s := f.servers[number]
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		return
	}
	if one.kind == "empty" || one.kind == "restart-empty" {
		select {
		case f.without <- struct{}{}:
			defer func() { <-f.without }()
		default:
			return
		}
	}
	disk := s.copy()
	if one.kind == "restart-old" {
		wait(ctx, time.Duration(one.random)*200*time.Millisecond)
	}
	f.history.fault(one.kind, s.name)
	if one.kind == "empty" {
		s.mini.FlushAll()
	} else {
		s.stop()
		switch {
		case one.kind == "restart-empty":
			s.mini.FlushAll()
		case one.kind == "restart-old" &&
			s.copy().top() < disk.top()+recovery.Jump/2: // else the copy lags too far for a standalone recovery
			s.putBack(disk)
		}
		wait(ctx, one.lasts)
		s.start()
	}
	f.recovered(ctx, number)
}
