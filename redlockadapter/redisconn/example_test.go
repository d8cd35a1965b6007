package redisconn_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// Call a script. The name of its key contains the life of the server.
func ExampleConn() {
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		log.Fatal(err)
	}
	defer mini.Close()
	mini.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		if command == "INFO" {
			c.WriteBulk("redis_version:7.4.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nrun_id:1\r\nmaster_replid:1\r\n")
		}
		return command == "INFO"
	})

	c := redisconn.New(redisconn.Config{Options: &redis.Options{Addr: mini.Addr()}, Prefix: "{ns}:",
		Timeout: 10 * time.Second, MaxAge: time.Minute, MaxSkew: time.Minute,
		Clock: engine.MonotonicClock(), Servers: redisconn.NewServers(), Failed: func() {}})
	go c.Run(func() {})
	defer c.Close()
	script := redisconn.NewScript("return KEYS[1]")
	reply, err := c.Do(context.Background(), redisconn.NewRequest(script, []string{"node"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Word(0) == "{ns}:"+c.Server()+":node")
	// Output: true
}
