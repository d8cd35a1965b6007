package server_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// addFloors gives engines that cannot raise their floor a plain way to do so.
func addFloors(c *server.Config, addresses []string) {
	if _, ok := any(c.Node).(server.FloorRaiser); !ok {
		c.RaftFloor = raftFloor{c.Node}
	}
	if _, ok := c.Redis.(server.FloorRaiser); !ok {
		c.RedisFloor = redisFloor(addresses)
	}
}

// raftFloor uses tokens up.
type raftFloor struct{ node *raftstore.Node }

func (f raftFloor) RaiseFloor(ctx context.Context, above fencing.Token) error {
	backend, err := raftstore.NewBackend([]*raftstore.Node{f.node})
	if err != nil {
		return err
	}
	session, err := backend.Open(ctx, lease.SessionConfig{ID: lease.NewSessionID(), TTL: lease.DefaultTTL, Clock: lease.SystemClock()})
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	for nonce := lease.Nonce(1); f.node.Status().LastToken <= above; nonce++ {
		name := fencing.Resource(fmt.Sprint("leased:floor/", nonce))
		if _, err := session.Acquire(ctx, lease.Request{Nonce: nonce, Resources: []fencing.Resource{name}}); err != nil {
			return err
		}
	}
	return nil
}

// redisFloor sets the key that the scripts of redlockadapter read.
type redisFloor []string

func (f redisFloor) RaiseFloor(ctx context.Context, above fencing.Token) error {
	const script = `if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end return 1`
	for _, address := range f {
		c := redis.NewClient(&redis.Options{Addr: address})
		err := c.Eval(ctx, script, []string{"{" + redlockadapter.DefaultNamespace + "}:floor"}, above.String()).Err()
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
