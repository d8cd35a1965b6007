package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

const (
	// connectPause is the time between two attempts to connect to a fleet.
	connectPause = 500 * time.Millisecond
	// closeTime bounds the closing of the connection to a former fleet.
	closeTime = 5 * time.Second
)

// Current connects a member to the Redis fleet of its local topology. It follows
// the topology: a changed fleet is connected to by itself, and the connection to
// the former one is closed. Closing releases no leases: they belong to callers
// that may renew them through another member.
type Current struct {
	source  engine.TopologySource
	options func(address string) *redis.Options
	logger  *slog.Logger
	now     atomic.Pointer[connection]
}

// connection is a Backend, or the reason why there is none.
type connection struct {
	fleet   engine.Fleet
	backend *redlockadapter.Backend
	err     error
}

// NewCurrent returns a Current that is not connected yet. options returns how a
// node is reached.
func NewCurrent(source engine.TopologySource, options func(address string) *redis.Options, logger *slog.Logger) *Current {
	c := &Current{source: source, options: options, logger: logger}
	c.now.Store(&connection{err: errNoFleet})
	return c
}

var errNoFleet = fmt.Errorf("%w: the service has no Redis nodes; set them with 'leased redis fleet set'", engine.ErrUnsupported)

// Backend returns the connection to the fleet, or why there is none.
func (c *Current) Backend() (*redlockadapter.Backend, error) {
	now := c.now.Load()
	return now.backend, now.err
}

// Of returns the connection if it is to this fleet, else nil.
func (c *Current) Of(fleet engine.Fleet) *redlockadapter.Backend {
	now := c.now.Load()
	if now.backend == nil || !now.fleet.Equal(fleet) {
		return nil
	}
	return now.backend
}

// Run follows the topology until ctx ends, and closes the connection then.
func (c *Current) Run(ctx context.Context) {
	defer c.replace(&connection{err: fmt.Errorf("%w: the member is stopping", engine.ErrUnavailable)})
	failed := "" // logged once for each reason
	for {
		topology := c.source.Topology()
		now := c.now.Load()
		if !topology.Fleet.Equal(now.fleet) || now.backend == nil && !topology.Fleet.IsZero() {
			next := c.connect(ctx, topology.Fleet)
			if next.err != nil && next.err.Error() != failed && !topology.Fleet.IsZero() && ctx.Err() == nil {
				failed = next.err.Error()
				c.logger.Warn("cannot connect to the Redis fleet", "error", next.err)
			}
			c.replace(next)
		}
		if c.await(ctx, topology.Version) != nil {
			return
		}
	}
}

// await returns when there is a newer topology, or when it is time to connect
// again; the error is that of ctx.
func (c *Current) await(ctx context.Context, version uint64) error {
	waiting := ctx
	if now := c.now.Load(); now.backend == nil && !now.fleet.IsZero() {
		limited, cancel := context.WithTimeout(ctx, connectPause)
		defer cancel()
		waiting = limited
	}
	_, _ = c.source.NextTopology(waiting, version)
	return ctx.Err()
}

func (c *Current) connect(ctx context.Context, fleet engine.Fleet) *connection {
	if fleet.IsZero() {
		return &connection{err: errNoFleet}
	}
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, Logger: c.logger,
		Topology: c.source.Topology}
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, c.options(address))
	}
	backend, err := redlockadapter.New(ctx, config)
	if err != nil {
		return &connection{fleet: fleet, err: fmt.Errorf("%w: connect to the Redis fleet: %w", engine.ErrUnavailable, err)}
	}
	return &connection{fleet: fleet, backend: backend}
}

// replace publishes a connection and closes the former one.
func (c *Current) replace(next *connection) {
	former := c.now.Swap(next)
	if former.backend == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := former.backend.Close(ctx); err != nil {
		c.logger.Warn("close the connection to the former Redis fleet", "error", err)
	}
}
