package peers

import (
	"context"
	"log/slog"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease"
)

// openLeased opens clients with their default settings, apart from options.
func openLeased(prefix string, options ...client.Option) func(endpoints []string) load.Target {
	return func(endpoints []string) load.Target {
		return func(ctx context.Context) (load.Client, error) {
			c, err := dialLeased(ctx, endpoints, options...)
			if err != nil {
				return nil, err
			}
			return &leaseClient{c, prefix}, nil
		}
	}
}

func dialLeased(ctx context.Context, endpoints []string, options ...client.Option) (*lease.Client, error) {
	return client.Dial(ctx, endpoints, append(options, client.WithLogger(slog.New(slog.DiscardHandler)))...)
}

// grants takes and releases a lock with a new client. It fails while the policies of a new
// service do not give the lock its mode yet.
func grants(ctx context.Context, endpoints []string, prefix string, mode lease.Mode) error {
	c, err := dialLeased(ctx, endpoints)
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
