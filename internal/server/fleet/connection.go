package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// connectInterval is the time between two tries to connect to a fleet, and between two checks whether the member
// was removed.
const connectInterval = 500 * time.Millisecond

var (
	errNoFleet = fmt.Errorf("%w: the service has no Redis nodes; set them with 'leased redis fleet set'",
		engine.ErrUnsupported)
	errNotConnected = fmt.Errorf("%w: this member has not connected to the Redis nodes yet", engine.ErrUnavailable)
	errRemoved      = fmt.Errorf("%w: this member was removed from the cluster; use another one", engine.ErrUnavailable)
)

// Connection connects a member to the Redis fleet of the topology that it has
// applied. When the topology names another fleet, it connects to that one and closes
// the connection to the former one. Closing releases no leases: their holders may
// renew them through another member. A member that was removed from the cluster has no connection: it does not learn
// of changes of the policies.
type Connection struct {
	// NodeTimeout bounds one request to one node. Default: redlockadapter.DefaultNodeTimeout.
	// Set it before Run.
	NodeTimeout time.Duration

	node    *raftstore.Node
	options func(address string) *redis.Options
	logger  *slog.Logger
	hooks   redlockadapter.Hooks
	now     atomic.Pointer[connected]
}

// connected is a Backend, or the reason why there is none.
type connected struct {
	fleet   engine.Fleet
	backend *redlockadapter.Backend
	err     error
}

// NewConnection returns a Connection that does not connect before Run. options
// returns the connection options of a node. hooks are called while the nodes are used.
func NewConnection(node *raftstore.Node, options func(address string) *redis.Options,
	hooks redlockadapter.Hooks, logger *slog.Logger) *Connection {
	c := &Connection{node: node, options: options, hooks: hooks, logger: logger}
	c.now.Store(&connected{err: errNoFleet})
	return c
}

// Backend returns the backend of the fleet, or why there is none.
func (c *Connection) Backend() (*redlockadapter.Backend, error) {
	now := c.now.Load()
	if now.err == errNoFleet && !c.node.Topology().Fleet.IsZero() { // the member has just learned of the fleet
		return nil, errNotConnected
	}
	return now.backend, now.err
}

// BackendOf returns the backend if it is connected to this fleet, else nil.
func (c *Connection) BackendOf(fleet engine.Fleet) *redlockadapter.Backend {
	now := c.now.Load()
	if now.backend == nil || !now.fleet.Equal(fleet) {
		return nil
	}
	return now.backend
}

// Run follows the topology until ctx ends, then closes the connection.
func (c *Connection) Run(ctx context.Context) {
	defer c.replace(&connected{err: fmt.Errorf("%w: the member is stopping", engine.ErrUnavailable)})
	logged := "" // the last error, to log each one once
	for {
		topology := c.node.Topology()
		now := c.now.Load()
		switch {
		case c.node.Removed():
			c.replace(&connected{err: errRemoved})
		case !topology.Fleet.Equal(now.fleet) || now.backend == nil && !topology.Fleet.IsZero():
			next := c.connect(ctx, topology.Fleet)
			if next.err != nil && next.err.Error() != logged && !topology.Fleet.IsZero() && ctx.Err() == nil {
				logged = next.err.Error()
				c.logger.Warn("cannot connect to the Redis fleet", "error", next.err)
			}
			c.replace(next)
		}
		if c.wait(ctx, topology.Version) != nil {
			return
		}
	}
}

// wait returns when there is a newer topology, or when it is time to connect again, or to check the membership.
// The error is that of ctx.
func (c *Connection) wait(ctx context.Context, version uint64) error {
	limited, cancel := context.WithTimeout(ctx, connectInterval)
	defer cancel()
	_, _ = c.node.NextTopology(limited, version)
	return ctx.Err()
}

func (c *Connection) connect(ctx context.Context, fleet engine.Fleet) *connected {
	if fleet.IsZero() {
		return &connected{err: errNoFleet}
	}
	config := c.Config(fleet)
	config.Logger, config.Hooks, config.Topology = c.logger, c.hooks, c.node.Topology
	backend, err := redlockadapter.New(ctx, config)
	if err != nil {
		return &connected{fleet: fleet, err: fmt.Errorf("%w: connect to the Redis fleet: %w", engine.ErrUnavailable, err)}
	}
	return &connected{fleet: fleet, backend: backend}
}

// Config returns how this member connects to the nodes of a fleet.
func (c *Connection) Config(fleet engine.Fleet) redlockadapter.Config {
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL,
		NodeTimeout: min(c.NodeTimeout, fleet.MaxTTL)}
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, c.options(address))
	}
	return config
}

// replace installs a backend and closes the former one.
func (c *Connection) replace(next *connected) {
	if former := c.now.Swap(next); former.backend != nil {
		_ = former.backend.Close(context.Background()) // it never fails
	}
}
