package redlockadapter

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Defaults of a Config.
const (
	DefaultNamespace   = "leased"
	DefaultNodeTimeout = 250 * time.Millisecond
	DefaultMaxTTL      = time.Minute
	DefaultMaxSkew     = time.Minute
	DefaultIdle        = 24 * time.Hour
)

// Config says which nodes to use, and how. A zero field takes its default.
type Config struct {
	// Nodes are the Redis masters, independent of each other: an odd number, 5 to
	// survive the loss of two, 1 for a single point of failure. All processes
	// that share locks must list the same addresses. Retries, timeouts and pool
	// are set by this package.
	Nodes []*redis.Options
	// Namespace is the beginning of every key. Default: DefaultNamespace.
	Namespace string
	// NodeTimeout bounds one exchange with one node. It should be small against
	// every TTL. Default: DefaultNodeTimeout.
	NodeTimeout time.Duration
	// MaxTTL is the longest TTL of a lease, and the quarantine of a node that
	// lost its state: by then every lock that it forgot has ended. All processes
	// must have the same. Default: DefaultMaxTTL.
	MaxTTL time.Duration
	// MaxSkew is how far a node's clock may be off at the start. Tokens do not
	// depend on clocks, but a clock that is far off is a sign of a broken machine.
	// Default: DefaultMaxSkew.
	MaxSkew time.Duration
	// IdleCounters is how long the record of an unused lock is kept at least.
	// Default: DefaultIdle.
	IdleCounters time.Duration
	// Topology returns the topology to act under, where a service has one. The
	// version that a call carries to the nodes and the mode of its locks are read
	// from one Topology: a newer version must never be used with older policies.
	// Nil means standalone: every lock is in efficiency mode, and the Backend
	// recovers lost nodes by itself.
	Topology func() engine.Topology
	// Logger hears of nodes that are lost and recovered. Default: slog.Default.
	Logger *slog.Logger
}

// standaloneVersion is the version of a fleet without a service.
const standaloneVersion = 1

func (c Config) filled() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	fill := func(d *time.Duration, byDefault time.Duration) {
		if *d == 0 {
			*d = byDefault
		}
	}
	fill(&c.NodeTimeout, DefaultNodeTimeout)
	fill(&c.MaxTTL, DefaultMaxTTL)
	fill(&c.MaxSkew, DefaultMaxSkew)
	fill(&c.IdleCounters, DefaultIdle)
	return c
}

// fleet is the set of the nodes.
func (c Config) fleet() engine.Fleet {
	f := engine.Fleet{Namespace: c.Namespace, MaxTTL: c.MaxTTL}
	for _, node := range c.Nodes {
		f.Addresses = append(f.Addresses, node.Addr)
	}
	return f
}

// validate checks a filled Config.
func (c Config) validate() error {
	if len(c.Nodes) == 0 {
		return fmt.Errorf("%w: no Redis nodes; give 5, or 1 if a single point of failure will do", engine.ErrInvalid)
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

// options returns what go-redis is started with for one node.
func (c Config) options(node *redis.Options) *redis.Options {
	o := *node
	o.Protocol = 2
	// A script that go-redis repeats by itself can land after its release.
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = c.NodeTimeout, c.NodeTimeout, c.NodeTimeout
	o.PoolTimeout = c.NodeTimeout
	o.DialerRetries = 1
	o.PoolSize, o.MaxConcurrentDials = 1, 1
	o.PipelinePoolSize = -1
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// The names of keys. The server's identity, its life, is in the name of all but
// one: a restarted server has no state under its new name.
//
//	{NAMESPACE}:LIFE:node              the state of the node
//	{NAMESPACE}:LIFE:lock:RESOURCE     the record of a lock
//	{NAMESPACE}:LIFE:waiting:RESOURCE  the processes that wait for it
//	{NAMESPACE}:life                   the latest life that was initialised
const (
	nodeKey    = "node"
	lifeKey    = "life" // the one without a life in its name
	lockPrefix = "lock:"
)

// keyPrefix begins the name of every key of a namespace.
func keyPrefix(namespace string) string { return "{" + namespace + "}:" }

// keysOf returns the keys of a script that looks at the node and some locks.
func keysOf(resources []fencing.Resource) []string {
	keys := make([]string, 1, 1+len(resources))
	keys[0] = nodeKey
	for _, r := range resources {
		keys = append(keys, lockPrefix+string(r))
	}
	return keys
}
