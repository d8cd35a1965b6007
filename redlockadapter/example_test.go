package redlockadapter_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// exampleNode starts a Redis server for the example and returns its address.
func exampleNode(number int) (addr string, stop func()) {
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		log.Fatal(err)
	}
	mini.SetTime(now())
	var saves atomic.Int64
	mini.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		switch command {
		case "INFO":
			c.WriteBulk(fmt.Sprintf("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"+
				"run_id:%d\r\nmaster_replid:%d\r\n"+
				"rdb_last_bgsave_status:ok\r\nrdb_saves:%d\r\n", number, number, saves.Load()))
		case "BGSAVE":
			saves.Add(1)
			c.WriteInline("Background saving started")
		case "CONFIG":
			c.WriteStrings([]string{"save", "3600 1"})
		default:
			return false
		}
		return true
	})
	return mini.Addr(), mini.Close
}

// Acquire leases from Redis nodes, in any process. The first one initialises the nodes.
func Example() {
	config := redlockadapter.Config{NodeTimeout: 10 * time.Second}
	for i := range 3 {
		addr, stop := exampleNode(i) // in production: an independent redis-server
		defer stop()
		config.Nodes = append(config.Nodes, &redis.Options{Addr: addr})
	}
	ctx := context.Background()
	backend, err := redlockadapter.New(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close(ctx)
	client, err := lease.New(backend, lease.WithPolicies(engine.Policy{TTL: 30 * time.Second}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	for range 2 {
		l, err := client.Acquire(ctx, "jobs/7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("write with token", l.Token()) // a gate refuses older tokens
		if err := l.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// write with token 1
	// write with token 2
}
