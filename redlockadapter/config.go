package redlockadapter

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// Defaults of a Config.
const (
	DefaultNamespace   = "leased"
	DefaultNodeTimeout = 250 * time.Millisecond
	DefaultMaxTTL      = time.Minute
	DefaultMaxSkew     = time.Minute
	DefaultIdle        = 24 * time.Hour
)

// maxBatch is how many attempts one script call takes. A Redis node does nothing
// else meanwhile, so it is bounded; beyond this the gain is small.
const maxBatch = 64

// Config says which nodes to use, and how. A zero field takes its default. All
// processes that use the same locks must have the same Namespace.
type Config struct {
	// Nodes are the Redis masters, independent of each other: an odd number, 5
	// to survive the loss of two, 1 for a single point of failure. What this
	// package depends on (retries, timeouts, pool) is set by it.
	Nodes []*redis.Options
	// Namespace begins every key, as a hash tag. Default: DefaultNamespace.
	Namespace string
	// NodeTimeout bounds one exchange with one node. It should be small against
	// every TTL. Default: DefaultNodeTimeout.
	NodeTimeout time.Duration
	// MaxTTL is the longest TTL of a session, and the quarantine of a node that
	// was emptied: by then every lock that it forgot has ended. Processes need not
	// have the same: the nodes keep the longest of all that ever connected, and
	// that is the quarantine for everyone. Default: DefaultMaxTTL.
	MaxTTL time.Duration
	// MaxSkew is how far a node's clock may be off at start. Tokens do not
	// depend on clocks; a clock that is far off is a sign of a broken machine,
	// and one that is put right under way ends locks early. Default:
	// DefaultMaxSkew.
	MaxSkew time.Duration
	// IdleCounters is how long the counter of an unused lock is kept at least. Default:
	// DefaultIdle.
	IdleCounters time.Duration
	// Shared switches shared leases and permits on. All processes that use the
	// same locks must know of them.
	Shared bool
}

func (c Config) filled() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
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

// validate checks a filled Config.
func (c Config) validate() error {
	switch n := len(c.Nodes); {
	case n == 0:
		return fmt.Errorf("%w: no Redis nodes; give 5, or 1 if a single point of failure will do", lease.ErrInvalid)
	case n%2 == 0:
		return fmt.Errorf("%w: %d Redis nodes; an even number survives no more losses than %d, so use an odd one", lease.ErrInvalid, n, n-1)
	case strings.ContainsAny(c.Namespace, "{} \n"):
		return fmt.Errorf("%w: namespace %q must have no braces, spaces or line breaks", lease.ErrInvalid, c.Namespace)
	case c.MaxTTL < lease.MinTTL || c.MaxTTL > lease.MaxTTL:
		return fmt.Errorf("%w: MaxTTL (%v) must be from %v to %v", lease.ErrInvalid, c.MaxTTL, lease.MinTTL, lease.MaxTTL)
	case c.NodeTimeout < time.Millisecond || c.NodeTimeout > c.MaxTTL:
		return fmt.Errorf("%w: NodeTimeout (%v) must be from 1ms to MaxTTL (%v)", lease.ErrInvalid, c.NodeTimeout, c.MaxTTL)
	case c.IdleCounters < c.MaxTTL:
		return fmt.Errorf("%w: IdleCounters (%v) must be at least MaxTTL (%v)", lease.ErrInvalid, c.IdleCounters, c.MaxTTL)
	case c.MaxSkew < 0:
		return fmt.Errorf("%w: MaxSkew (%v) must not be negative", lease.ErrInvalid, c.MaxSkew)
	}
	seen := map[string]bool{}
	for i, o := range c.Nodes {
		if o == nil || o.Addr == "" {
			return fmt.Errorf("%w: Redis node %d has no address", lease.ErrInvalid, i+1)
		}
		if seen[o.Addr] {
			return fmt.Errorf("%w: Redis node %s is listed twice; one node has one vote", lease.ErrInvalid, o.Addr)
		}
		seen[o.Addr] = true
	}
	return nil
}

// options are what go-redis is started with for one node.
func (c Config) options(node *redis.Options) *redis.Options {
	o := *node
	o.Protocol = 2
	// A script that is sent twice while its caller believes it was sent once can
	// land after the caller's release. Attempts are repeated here, knowingly.
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = c.NodeTimeout, c.NodeTimeout, c.NodeTimeout
	o.PoolTimeout = c.NodeTimeout
	o.DialerRetries = 1
	o.PoolSize, o.MaxConcurrentDials = 4, 4
	o.PipelinePoolSize = -1
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// keys are the names of what is kept on a node, see scripts/state.md.
type keys struct {
	base    string
	channel string // beginning, followed by the process
}

func keysOf(namespace string) keys {
	p := "{" + namespace + "}"
	return keys{base: p, channel: p + ":wake:"}
}

// of is the name of the hash of a node in one run of its server.
func (k keys) of(runID string) string { return k.base + ":" + runID[:min(16, len(runID))] }

// lockOf is the field of a lock.
func lockOf(resource fencing.Resource) string { return ":" + string(resource) }
