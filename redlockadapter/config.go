package redlockadapter

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Defaults of a Config.
const (
	DefaultNamespace   = "leased"
	DefaultNodeTimeout = 250 * time.Millisecond
	DefaultMaxTTL      = time.Minute
	DefaultMaxSkew     = time.Minute
	DefaultIdle        = 24 * time.Hour
)

// Config names the nodes and sets the timings. A zero field takes its default.
type Config struct {
	// Nodes are independent Redis masters: an odd number, 5 to survive the loss of
	// two, 1 for a single point of failure. All processes that share locks must list
	// the same addresses. Retries, timeouts and pool are overridden.
	Nodes []*redis.Options
	// Clients adds the nodes of clients that the program already has. Only their options are
	// used. They must be of type *redis.Client.
	Clients []redis.UniversalClient
	// Namespace begins every key. Default: DefaultNamespace.
	Namespace string
	// NodeTimeout bounds one request to one node. It should be small compared to
	// every TTL. Default: DefaultNodeTimeout, or MaxTTL if that is shorter.
	NodeTimeout time.Duration
	// MaxTTL is the longest TTL of a lease, and the quarantine of a node that lost its
	// state: after that time every lock that the node forgot has expired. Without a
	// service, processes with different values do not share locks: the nodes refuse
	// them. Default: DefaultMaxTTL.
	MaxTTL time.Duration
	// MaxSkew bounds the clock skew of a node. A node beyond it does not vote. Tokens do
	// not depend on clocks, but a large skew indicates a broken machine. Default:
	// DefaultMaxSkew.
	MaxSkew time.Duration
	// IdleCounters is the minimum time for which the record of an unused lock is kept.
	// Default: DefaultIdle.
	IdleCounters time.Duration
	// Topology returns the topology of the service. A call takes its version and the
	// mode of its locks from one Topology: a newer version must never be used with
	// older policies. Nil means standalone: every lock is in efficiency mode, and the
	// Backend recovers lost nodes by itself.
	Topology func() engine.Topology
	// Clock must advance while the machine is suspended. Default: engine.SystemClock.
	Clock engine.Clock
	// Hooks are called while the Backend works, for metrics. Default: none.
	Hooks Hooks
	// Logger logs nodes that are lost and recovered. Default: slog.Default.
	Logger *slog.Logger
}

// withDefaults returns the Config with its zero fields filled.
func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.MaxTTL = cmp.Or(c.MaxTTL, DefaultMaxTTL)
	c.NodeTimeout = cmp.Or(c.NodeTimeout, min(DefaultNodeTimeout, c.MaxTTL))
	c.MaxSkew = cmp.Or(c.MaxSkew, DefaultMaxSkew)
	c.Clock = cmp.Or(c.Clock, engine.SystemClock())
	c.IdleCounters = cmp.Or(c.IdleCounters, DefaultIdle)
	return c
}

// addClients adds the nodes of Clients to Nodes.
func (c *Config) addClients() error {
	nodes := slices.Clone(c.Nodes)
	for i, client := range c.Clients {
		one, ok := client.(*redis.Client)
		if !ok || one == nil {
			return fmt.Errorf("%w: Redis client %d is a %T; a node is one independent master, so give a *redis.Client for "+
				"each, "+
				"not a cluster, a ring or Sentinel", engine.ErrInvalid, i+1, client)
		}
		nodes = append(nodes, one.Options())
	}
	c.Nodes, c.Clients = nodes, nil
	return nil
}

// The timings of the checks that an address still leads to the connected server.
const (
	maxCheckInterval = time.Second
	maxCheckAge      = 10 * time.Second
)

// checkInterval is the time between two checks of the servers.
func (c Config) checkInterval() time.Duration { return min(maxCheckInterval, c.MaxTTL/4) }

// checkAge is the time for which a connection is used after the last check. It is shorter
// than the quarantine, so a server that has lost its address is not used any more when its
// successor begins to vote.
func (c Config) checkAge() time.Duration { return min(maxCheckAge, c.MaxTTL/2) }

// joinGap is how long the joins of a node may pause without restarting its quarantine: a few
// looks of the keeper, even if other nodes do not answer. After a longer pause, the address may
// have led to another server in between.
func (c Config) joinGap() time.Duration { return 3*c.checkInterval() + 12*c.NodeTimeout }

// fleet returns the set of the nodes.
func (c Config) fleet() engine.Fleet {
	f := engine.Fleet{Namespace: c.Namespace, MaxTTL: c.MaxTTL}
	for _, node := range c.Nodes {
		f.Addresses = append(f.Addresses, node.Addr)
	}
	return f
}

// fingerprint identifies the fleet on the nodes.
func (c Config) fingerprint() string {
	if c.Topology == nil {
		return recovery.StandaloneFleet(c.fleet())
	}
	return c.fleet().Fingerprint()
}

// validate checks a Config that has its defaults.
func (c Config) validate() error {
	if len(c.Nodes) == 0 {
		return fmt.Errorf("%w: no Redis nodes; list 5, or 1 if a single point of failure is acceptable", engine.ErrInvalid)
	}
	for i, node := range c.Nodes {
		if node == nil {
			return fmt.Errorf("%w: Redis node %d is nil", engine.ErrInvalid, i+1)
		}
	}
	if err := c.fleet().Validate(); err != nil {
		return err
	}
	switch {
	case c.NodeTimeout < time.Millisecond || c.NodeTimeout > c.MaxTTL:
		return fmt.Errorf("%w: NodeTimeout (%v) must be from 1ms to MaxTTL (%v)", engine.ErrInvalid, c.NodeTimeout, c.MaxTTL)
	case c.IdleCounters < c.MaxTTL:
		return fmt.Errorf("%w: IdleCounters (%v) must be at least MaxTTL (%v)", engine.ErrInvalid, c.IdleCounters, c.MaxTTL)
	case c.MaxSkew < 0:
		return fmt.Errorf("%w: MaxSkew (%v) must not be negative", engine.ErrInvalid, c.MaxSkew)
	}
	return nil
}
