package peers

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/internal/load"
)

// newRedsync opens redsync with its default settings: a lock lives for 8 seconds, and a
// waiter polls every 50 to 250 milliseconds.
func newRedsync(addresses []string) load.Target {
	return func(context.Context) (load.Client, error) {
		c := &redsyncClient{clients: dialRedis(addresses)}
		var pools []redsyncpool.Pool
		for _, client := range c.clients {
			pools = append(pools, goredis.NewPool(client))
		}
		c.redsync = redsync.New(pools...)
		return c, nil
	}
}

type redsyncClient struct {
	clients []*redis.Client
	redsync *redsync.Redsync
}

// Acquire implements [load.Client]. The library gives up after 32 attempts; Acquire then
// begins again, as a caller that needs the lock does.
func (c *redsyncClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	m := c.redsync.NewMutex(name)
	for {
		err := m.LockContext(ctx)
		if err == nil {
			return load.Held{Release: func(ctx context.Context) error { // the library has no fencing tokens
				_, err := m.UnlockContext(ctx)
				return err
			}}, nil
		}
		if ctx.Err() != nil || !isTaken(err) {
			return load.Held{}, err
		}
	}
}

// isTaken reports whether another worker holds the lock, or the votes of the nodes are
// split so that none does.
func isTaken(err error) bool {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	return errors.As(err, &taken) || errors.As(err, &node) || errors.Is(err, redsync.ErrFailed)
}

// Close implements [load.Client].
func (c *redsyncClient) Close(context.Context) error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}
