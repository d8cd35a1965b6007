package redlockadapter_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

var errRefused = errors.New("connection refused")

// virtualNode is a Redis master in a synctest bubble: miniredis runs the real scripts,
// and the node answers INFO as a real server does.
type virtualNode struct {
	name string
	mini *miniredis.Miniredis

	dialing  sync.Mutex
	mu       sync.Mutex
	up       bool
	lives    int
	delay    time.Duration // of requests to the node
	acquires int           // calls of acquire.lua
	sweeps   int           // calls of sweep.lua
	huge     bool          // a sweep never ends
	release  func() error  // see onRelease
	saves    int           // calls of BGSAVE
	noSaves  bool          // INFO does not tell how often the node has saved its data
	refusal  string        // the answer to BGSAVE; empty if the node saves its data
	appends  string        // INFO about an append-only file; empty without one
}

func newVirtualNode(t testing.TB, number int) *virtualNode {
	n := &virtualNode{name: fmt.Sprintf("redis-%d:6379", number), mini: miniredis.NewMiniRedis()}
	n.mini.SetTime(now())
	n.mini.ClockTTL(true)
	n.start(t)
	t.Cleanup(n.stop)
	return n
}

// now returns the virtual time.
func now() time.Time { return engine.MonotonicClock().Now().Time() }

func (n *virtualNode) start(t testing.TB) {
	t.Helper()
	conn, err := n.mini.Dial() // starts it
	require.NoError(t, err)
	n.mini.Server().SetPreHook(n.before)
	require.NoError(t, conn.Close())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = true
	n.lives++
}

// stop closes all connections and keeps the data.
func (n *virtualNode) stop() {
	n.dialing.Lock()
	n.mu.Lock()
	n.up = false
	n.mu.Unlock()
	n.dialing.Unlock()
	n.mini.Close()
}

// restart starts a new life, with or without the data.
func (n *virtualNode) restart(t testing.TB, keep bool) {
	t.Helper()
	n.stop()
	if !keep {
		n.mini.FlushAll()
	}
	n.start(t)
}

// before is called before miniredis executes a command.
func (n *virtualNode) before(c *server.Peer, command string, args ...string) bool {
	n.mu.Lock()
	var release func() error
	sweeps := false
	if command == "EVALSHA" && len(args) > 0 {
		switch args[0] {
		case acquireSHA:
			n.acquires++
		case sweepSHA:
			n.sweeps++
			sweeps = n.huge
		case releaseSHA:
			release = n.release
		}
	}
	n.mu.Unlock()
	if release != nil {
		if err := release(); err != nil {
			c.WriteError(err.Error())
			return true
		}
	}
	if sweeps {
		c.WriteBulk("1") // the next cursor
		return true
	}
	switch command {
	case "EVAL", "EVALSHA":
		n.mini.SetTime(now())
	case "INFO":
		c.WriteBulk(n.info())
		return true
	case "BGSAVE":
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.refusal != "" {
			c.WriteError(n.refusal)
			return true
		}
		n.saves++
		c.WriteInline("Background saving started")
		return true
	}
	return false
}

// info returns the INFO of a real server.
func (n *virtualNode) info() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	saves := fmt.Sprintf("rdb_saves:%d\r\n", n.saves)
	if n.noSaves {
		saves = ""
	}
	return fmt.Sprintf("redis_version:7.4.0\r\narch_bits:64\r\nrole:master\r\nconnected_slaves:0\r\n"+
		"maxmemory_policy:noeviction\r\n"+
		"cluster_enabled:0\r\nrun_id:%s-%d\r\nmaster_replid:%s\r\naof_enabled:0\r\nrdb_last_bgsave_status:ok\r\n%s%s", n.name,
		n.lives, n.name, saves, n.appends)
}

// server returns the name of the present run of the server.
func (n *virtualNode) server() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s-%d\n%s", n.name, n.lives, n.name))
	return hex.EncodeToString(sum[:8])
}

func (n *virtualNode) setDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// forbidden is the refusal of a command that the Redis user may not call.
const forbidden = "NOPERM User leased has no permissions to run the 'bgsave' command"

// refuseSaves makes the nodes answer BGSAVE with an error, or save their data again.
func (f *virtualFleet) refuseSaves(refusal string) {
	for _, n := range f.nodes {
		n.mu.Lock()
		n.refusal = refusal
		n.mu.Unlock()
	}
}

// appendOnly gives the node an append-only file, which it rewrites or not.
func (n *virtualNode) appendOnly(rewrites int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.appends = fmt.Sprintf("aof_enabled:1\r\naof_last_write_status:ok\r\naof_pending_bio_fsync:0\r\n"+
		"aof_rewrite_in_progress:%d\r\n", rewrites)
}

// onRelease calls f before each call of release.lua, which fails with the error of f.
func (n *virtualNode) onRelease(f func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release = f
}

// refuse makes the node refuse new connections, or accept them again.
func (n *virtualNode) refuse(yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = !yes
}

func (n *virtualNode) countAcquires() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.acquires
}

func (n *virtualNode) countSweeps() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sweeps
}

func (n *virtualNode) dial(context.Context, string, string) (net.Conn, error) {
	conn, err := n.connect()
	if err != nil {
		return nil, err
	}
	client, remote := net.Pipe()
	go forward(remote, conn, n.currentDelay)
	go forward(conn, remote, func() time.Duration { return 0 })
	return client, nil
}

// connect connects to miniredis, which would start again if it was stopped meanwhile.
func (n *virtualNode) connect() (net.Conn, error) {
	n.dialing.Lock()
	defer n.dialing.Unlock()
	n.mu.Lock()
	up := n.up
	n.mu.Unlock()
	if !up {
		return nil, errRefused
	}
	return n.mini.Dial()
}

func (n *virtualNode) currentDelay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delay
}

// forward is one direction of a network connection. Unlike a net.Pipe it has a buffer,
// and delivers data even if the sender has closed the connection.
func forward(from, to net.Conn, currentDelay func() time.Duration) {
	type packet struct {
		data []byte
		due  time.Time
	}
	queue := make(chan packet, 1<<10)
	go func() {
		defer close(queue)
		for {
			data := make([]byte, 1<<14)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			queue <- packet{data[:n], now().Add(currentDelay())}
		}
	}()
	for p := range queue {
		if wait := p.due.Sub(now()); wait > 0 {
			<-time.After(wait)
		}
		if _, err := to.Write(p.data); err != nil {
			from.Close()
		}
	}
	to.Close()
}

// virtualFleet is a set of nodes in a bubble.
type virtualFleet struct {
	nodes  []*virtualNode
	config redlockadapter.Config
	clock  *leasetest.Clock
}

// virtualTTL is the TTL of leases and the quarantine of nodes.
const virtualTTL = 10 * time.Second

func newVirtualFleet(t testing.TB, size int) *virtualFleet {
	t.Helper()
	// go-redis may sleep for a second after a failed dial, even if it is closed.
	t.Cleanup(func() { advance(3 * time.Second) })
	f := &virtualFleet{clock: leasetest.NewClock(), config: redlockadapter.Config{MaxTTL: virtualTTL,
		Clock: engine.MonotonicClock(), Logger: discard()}}
	for i := range size {
		n := newVirtualNode(t, i)
		f.nodes = append(f.nodes, n)
		f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: n.name, Dialer: n.dial})
	}
	return f
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (f *virtualFleet) init(t testing.TB) *virtualFleet {
	t.Helper()
	require.NoError(t, redlockadapter.Init(t.Context(), f.config, fencing.None))
	advance(time.Until(now().Truncate(time.Second).Add(time.Second))) // records have times in seconds
	return f
}

// initService makes the nodes voters of a service, with unlimited tokens.
func (f *virtualFleet) initService(t testing.TB) *virtualFleet {
	t.Helper()
	one := *f
	one.config.Topology = func() engine.Topology { return engine.Topology{} }
	b, err := redlockadapter.New(t.Context(), one.config)
	require.NoError(t, err)
	for i, n := range f.nodes {
		require.NoError(t, b.Join(t.Context(), i, n.server(), "join", 1))
		_, err := b.Initialise(t.Context(), i, n.server(), recovery.Range{Join: "join", Version: 1,
			Ceiling: fencing.MaxToken})
		require.NoError(t, err)
	}
	require.NoError(t, b.Close(t.Context()))
	return f
}

func (f *virtualFleet) backend(t testing.TB) *redlockadapter.Backend {
	t.Helper()
	b, err := redlockadapter.New(t.Context(), f.config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// voter waits until a node votes, and returns its state.
func voter(t testing.TB, b *redlockadapter.Backend, node int) (state *recovery.State) {
	t.Helper()
	waitFor(t, func() bool {
		state = b.NodeStatuses(context.Background())[node].Report.Live
		return state != nil
	}, "the node votes")
	return state
}

// live returns the nodes that vote.
func live(t testing.TB, b *redlockadapter.Backend) (nodes []int) {
	t.Helper()
	for i, s := range b.NodeStatuses(context.Background()) {
		if s.Err == nil && s.Report.Live != nil {
			nodes = append(nodes, i)
		}
	}
	return nodes
}
