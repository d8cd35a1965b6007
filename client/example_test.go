package client_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/memgate"
)

// One client serves locks of both modes. The program examples/client runs against the
// service that `make run` starts.
func ExampleDial() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"10.0.0.1:7420", "10.0.0.2:7420", "10.0.0.3:7420"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	gate := memgate.New[int](fencing.Rule{})
	err = locks.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		if err := gate.Enter(ctx, l.GateResource(), l.Token()); err != nil {
			return err
		}
		return gate.Do(ctx, l.GateResource(), l.Token(), func(balance *int) error { *balance += 50; return nil })
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Redis nodes with TLS, a user and a password.
func ExampleWithRedis() {
	redisOptions := client.WithRedis(func(string) *redis.Options {
		return &redis.Options{Username: "locks", Password: os.Getenv("REDIS_PASSWORD"), TLSConfig: &tls.Config{}}
	})
	_, err := client.Dial(context.Background(), nil, redisOptions)
	fmt.Println(err)
	// Output: invalid request: there are no endpoints; give the address of a member, such as "127.0.0.1:7420"
}
