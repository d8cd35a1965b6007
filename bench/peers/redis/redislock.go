package redis

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

// redislockTarget is redislock with a linear backoff, as its documentation shows.
type redislockTarget struct {
	name    string
	address string
}

func newRedislock(name string, addresses []string) load.Target {
	t := &redislockTarget{name: name}
	if len(addresses) > 0 {
		t.address = addresses[0]
	}
	return t
}

// Name implements [load.Target].
func (t *redislockTarget) Name() string { return t.name }

// Open implements [load.Target].
func (t *redislockTarget) Open(context.Context) (load.Client, error) {
	client := dial([]string{t.address})[0]
	return &redislockClient{client, redislock.New(client)}, nil
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
		lock, err := c.locker.Obtain(ctx, name, redislockTTL, options)
		if err == nil {
			return redislockLock{lock}, nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redislock.ErrNotObtained) {
			return nil, err
		}
	}
}

// Close implements [load.Client].
func (c *redislockClient) Close(context.Context) error { return c.client.Close() }

type redislockLock struct{ lock *redislock.Lock }

// Token returns 0: the tokens of the library are random, and fence nothing.
func (l redislockLock) Token() uint64 { return 0 }

// Release implements [load.Held].
func (l redislockLock) Release(ctx context.Context) error { return l.lock.Release(ctx) }
