package redlockadapter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
)

// minRedis is the oldest major version whose scripts behave as ours expect.
const minRedis = 7

// fullMargin is how near to the largest token a counter may be at start.
const fullMargin = 1 << 32

// node is one Redis master: what was found when a connection was made to it.
type node struct {
	addr    string
	options *redis.Options
	theirs  func(context.Context, *redis.Conn) error // the user's OnConnect
	client  *redis.Client
	keys    keys
	maxTTL  time.Duration
	poke    func() // something is to be looked at

	looks atomic.Uint64 // how often it was looked at

	mu      sync.Mutex
	looked  uint64 // the look that what follows is from
	runID   string
	durable string // "1" if a restart of that run loses nothing that was answered
}

// key is what the node's hash is called in the run that was last seen. What is
// there under the name of another run is none of ours, see scripts/admit.lua.
func (n *node) key() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.keys.of(n.runID)
}

func newNode(c Config, options *redis.Options, poke func()) *node {
	n := &node{addr: options.Addr, keys: keysOf(c.Namespace), maxTTL: c.MaxTTL, poke: poke}
	n.options = c.options(options)
	n.theirs = n.options.OnConnect
	n.options.OnConnect = n.onConnect(0)
	n.client = redis.NewClient(n.options)
	return n
}

// onConnect has a server looked at. maxTTL is the longest TTL that will be asked
// for on this connection.
func (n *node) onConnect(maxTTL time.Duration) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		_, err := n.connected(ctx, conn, maxTTL)
		return err
	}
}

// connected is onConnect, and returns the run id of the server.
func (n *node) connected(ctx context.Context, conn *redis.Conn, maxTTL time.Duration) (runID string, err error) {
	if n.theirs != nil {
		if err := n.theirs(ctx, conn); err != nil {
			return "", err
		}
	}
	return n.admit(ctx, conn, maxTTL)
}

// loadScripts makes the scripts known to the server.
func loadScripts(ctx context.Context, c redis.Cmdable) error {
	pipe := c.Pipeline()
	for _, s := range laneScripts {
		pipe.ScriptLoad(ctx, s.text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// admit is run on every new connection before it is used. A server that was
// restarted has closed all the old ones, so nobody gets its vote before this
// has looked whether its data can be trusted.
func (n *node) admit(ctx context.Context, conn *redis.Conn, maxTTL time.Duration) (runID string, err error) {
	look := n.looks.Add(1)
	info, err := conn.Info(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("ask %s what it is: %w", n.addr, err)
	}
	facts := parseInfo(info)
	if err := facts.check(n.addr); err != nil {
		return "", err
	}
	if err := loadScripts(ctx, conn); err != nil {
		return "", fmt.Errorf("load scripts on %s: %w", n.addr, err)
	}
	durable := "0"
	fsync, err := conn.ConfigGet(ctx, "appendfsync").Result() // may be forbidden: not durable then
	if err == nil && facts.durable(fsync["appendfsync"]) {
		durable = "1"
	}
	runID = facts["run_id"]
	reply, err := run(ctx, conn, admitScript, n.keys.of(runID), runID, durable, maxTTL.Milliseconds())
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	if look > n.looked {
		n.looked, n.runID, n.durable = look, runID, durable
	}
	n.mu.Unlock()
	if reply[0] != "ok" {
		n.poke()
	}
	return runID, nil
}

// run has a rare script run on the node. If it turns out on the way that the
// server is in another run, it is asked again by that name; the scripts do not mind.
func (n *node) run(ctx context.Context, s *script, args ...any) ([]string, error) {
	key := n.key()
	reply, err := run(ctx, n.client, s, key, args...)
	if now := n.key(); now != key {
		return run(ctx, n.client, s, now, args...)
	}
	return reply, err
}

// run sends a rare script with its text.
func run(ctx context.Context, c redis.Scripter, s *script, key string, args ...any) ([]string, error) {
	reply, err := c.Eval(ctx, s.text, []string{key}, args...).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if len(reply) == 0 {
		return nil, fmt.Errorf("%s: the node answered nothing", s.name)
	}
	return reply, nil
}

// facts are the fields of INFO.
type facts map[string]string

func parseInfo(info string) facts {
	f := facts{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	return f
}

// check reports why a server must not be a node.
func (f facts) check(addr string) error {
	major, _ := strconv.Atoi(strings.SplitN(f["redis_version"], ".", 2)[0])
	switch {
	case major < minRedis:
		return setupError(addr, "it runs Redis %s; use version %d or later", f["redis_version"], minRedis)
	case f["cluster_enabled"] == "1":
		return setupError(addr, "it runs in cluster mode, where a failover loses votes; use independent masters")
	case f["role"] != "master":
		return setupError(addr, "it is a replica of %s:%s; a replica must not vote: use independent masters", f["master_host"], f["master_port"])
	case f["maxmemory_policy"] != "noeviction":
		return setupError(addr, "its maxmemory-policy is %s, which may drop locks; set it to noeviction", f["maxmemory_policy"])
	case f["arch_bits"] == "32":
		return setupError(addr, "it is a 32-bit build, whose scripts cannot count to 2^53; use a 64-bit one")
	case f["run_id"] == "":
		return setupError(addr, "its INFO has no run_id, so a restart cannot be noticed")
	}
	return nil
}

// durable reports whether a restart loses nothing that was answered. A server
// that was promoted from a replica may lack what its master had answered.
func (f facts) durable(fsync string) bool {
	return f["aof_enabled"] == "1" && fsync == "always" && strings.Trim(f["master_replid2"], "0") == ""
}

// state is what a node says of itself.
type state struct {
	data       bool // it may vote
	doubted    bool // it was restarted, and says that it has lost nothing
	believed   bool // it votes by its word
	max, floor fencing.Token
	epoch      uint64
	joined     bool          // it may not vote, and someone has seen that
	since      time.Duration // since that was first seen
	clock      time.Time
	skew       time.Duration
	maxTTL     time.Duration // of all who connected to it
	runID      string
}

// ask reads the node's state.
func (n *node) ask(ctx context.Context, now func() time.Time) (state, error) {
	before := now()
	reply, err := n.run(ctx, statusScript)
	if err != nil {
		return state{}, fmt.Errorf("%s: %w", n.addr, err)
	}
	after := now()
	if len(reply) != 7 {
		return state{}, fmt.Errorf("%s: status has %d fields", n.addr, len(reply))
	}
	var s state
	var top string
	top, s.doubted = strings.CutPrefix(reply[0], "?")
	s.data = top != "" && !s.doubted
	if top != "" {
		if s.max, err = fencing.ParseToken(top); err != nil {
			return state{}, setupError(n.addr, "its largest token: %v", err)
		}
	}
	if s.floor, err = fencing.ParseToken(reply[2]); err != nil {
		return state{}, setupError(n.addr, "its floor: %v", err)
	}
	if s.epoch, err = strconv.ParseUint(reply[1], 10, 53); err != nil {
		return state{}, setupError(n.addr, "its epoch %q is no number", reply[1])
	}
	s.joined = reply[3] != ""
	since, _ := strconv.ParseInt(reply[3], 10, 64)
	s.since = time.Duration(since) * time.Millisecond
	millis, _ := strconv.ParseInt(reply[4], 10, 64)
	s.clock = time.UnixMilli(millis)
	millis, _ = strconv.ParseInt(reply[5], 10, 64)
	s.maxTTL = time.Duration(millis) * time.Millisecond
	s.believed = reply[6] != ""
	switch { // off only by what the time of the exchange cannot explain
	case s.clock.Before(before.Add(-time.Millisecond)):
		s.skew = s.clock.Sub(before)
	case s.clock.After(after):
		s.skew = s.clock.Sub(after)
	}
	n.mu.Lock()
	s.runID = n.runID
	n.mu.Unlock()
	return s, nil
}
