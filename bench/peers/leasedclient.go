package peers

import (
	"context"
	"log/slog"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease"
)

// leaseTarget opens clients of a service with their default settings.
type leaseTarget struct {
	name         string
	endpoints    []string
	prefix       string // of the names of locks, which selects the mode
	withoutRedis bool
}

func targetOf(name string, endpoints []string) load.Target {
	if name == JSON {
		return &jsonTarget{endpoints: endpoints}
	}
	t := &leaseTarget{name: name, endpoints: endpoints, prefix: efficiencyPrefix}
	switch name {
	case Correctness:
		t.prefix = correctnessPrefix
	case Member:
		t.withoutRedis = true
	}
	return t
}

// Name implements [load.Target].
func (t *leaseTarget) Name() string { return t.name }

// Open implements [load.Target].
func (t *leaseTarget) Open(ctx context.Context) (load.Client, error) {
	c, err := client.Dial(ctx, t.endpoints, t.options()...)
	if err != nil {
		return nil, err
	}
	return &leaseClient{c, t.prefix}, nil
}

func (t *leaseTarget) options() []client.Option {
	options := []client.Option{client.WithLogger(slog.New(slog.DiscardHandler))}
	if t.withoutRedis {
		options = append(options, client.WithoutRedis())
	}
	return options
}

// tryOnce acquires and releases a lock with a new client. It fails while the policies of
// a new service do not give the lock its mode yet.
func (t *leaseTarget) tryOnce(ctx context.Context) error {
	c, err := client.Dial(ctx, t.endpoints, t.options()...)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	mode := lease.Correctness
	if t.prefix == efficiencyPrefix {
		mode = lease.Efficiency
	}
	l, err := c.Acquire(ctx, fencing.Resource(t.prefix+"ready"), lease.WithMode(mode))
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

type leaseClient struct {
	client *lease.Client
	prefix string
}

func (c *leaseClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	l, err := c.client.Acquire(ctx, fencing.Resource(c.prefix+name))
	if err != nil {
		return nil, err
	}
	return lock{uint64(l.Token()), l.Release}, nil
}

func (c *leaseClient) Close(ctx context.Context) error { return c.client.Close(ctx) }
