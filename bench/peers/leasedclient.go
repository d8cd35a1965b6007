package peers

import (
	"context"
	"log/slog"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease"
)

// targetOf returns how the clients of a target of a service are opened, with their default settings.
func targetOf(name string) func(endpoints []string) load.Target {
	options, prefix := []client.Option{client.WithLogger(slog.New(slog.DiscardHandler))}, efficiencyPrefix
	switch name {
	case JSON:
		return openJSON
	case Correctness:
		prefix = correctnessPrefix
	case Member:
		options = append(options, client.WithoutRedis())
	}
	return func(endpoints []string) load.Target {
		return func(ctx context.Context) (load.Client, error) {
			c, err := client.Dial(ctx, endpoints, options...)
			if err != nil {
				return nil, err
			}
			return &leaseClient{c, prefix}, nil
		}
	}
}

// grants takes and releases a lock with a new client. It fails while the policies of a new
// service do not give the lock its mode yet.
func (s *service) grants(ctx context.Context, prefix string, mode lease.Mode) error {
	c, err := client.Dial(ctx, s.Endpoints, client.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	l, err := c.Acquire(ctx, fencing.Resource(prefix+"ready"), lease.WithMode(mode))
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
		return load.Held{}, err
	}
	return load.Held{Token: uint64(l.Token()), Release: l.Release}, nil
}

func (c *leaseClient) Close(ctx context.Context) error { return c.client.Close(ctx) }
