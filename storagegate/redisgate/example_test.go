package redisgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/redisgate"
)

func ExampleGate() {
	ctx := context.Background()
	server, err := shared() // a Redis server
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	gate := redisgate.New(client, fencing.Rule{})
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := gate.Do(ctx, "example/42", token, func(tx *redisgate.Tx) error {
			tx.Set(redisgate.Key("example/42", ":status"), "paid")
			tx.RPush(redisgate.Key("example/42", ":log"), token.String())
			return nil
		})
		fmt.Println(err)
	}
	fmt.Println(client.LRange(ctx, "{example/42}:log", 0, -1).Val())
	// Output:
	// <nil>
	// stale fencing token 33 for "example/42": 34 has been admitted; the lease is lost, stop writing
	// [34]
}

func ExampleGate_Run() {
	ctx := context.Background()
	server, err := shared() // a Redis server
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	gate := redisgate.New(client, fencing.Rule{})
	spend := redisgate.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
	for _, token := range []fencing.Token{34, 33} {
		fmt.Println(gate.Run(ctx, "budget/7", token, spend, []string{redisgate.Key("budget/7", "")}, 10))
	}
	// Output:
	// -10 <nil>
	// <nil> stale fencing token 33 for "budget/7": 34 has been admitted; the lease is lost, stop writing
}

// The server of this example keeps its data in memory only.
func ExampleVerify() {
	server, err := shared() // a Redis server
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	var weak *storagegate.VerifyError
	if errors.As(redisgate.Verify(context.Background(), client), &weak) {
		for _, w := range weak.Weaknesses {
			fmt.Println(w.Setting, "is", w.Value+":", w.Advice)
		}
	}
	// Output:
	// appendonly is no: set appendonly yes, because a restart loses marks otherwise
	// appendfsync is everysec: set appendfsync always, because a power failure loses the last marks otherwise
}
