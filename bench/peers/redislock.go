package peers

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/internal/load"
)

const (
	// redislockTTL is the lifetime of a lock. The library has no default.
	redislockTTL = 10 * time.Second
	// redislockBackoff is the retry interval of the example in the library's documentation.
	redislockBackoff = 100 * time.Millisecond
)

// newRedislock opens redislock with a linear backoff, as its documentation shows.
func newRedislock(addresses []string) load.Target {
	return func(context.Context) (load.Client, error) {
		client := dialRedis(addresses)[0]
		return &redislockClient{client, redislock.New(client)}, nil
	}
}

type redislockClient struct {
	client *redis.Client
	locker *redislock.Client
}

// Acquire implements [load.Client]. Without a deadline, the library waits for the lifetime
// of the lock at most; Acquire then begins again.
func (c *redislockClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)}
	for {
		held, err := c.locker.Obtain(ctx, name, redislockTTL, options)
		if err == nil {
			return load.Held{Release: held.Release}, nil // the tokens of the library are random, and fence nothing
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redislock.ErrNotObtained) {
			return load.Held{}, err
		}
	}
}

// Close implements [load.Client].
func (c *redislockClient) Close(context.Context) error { return c.client.Close() }
