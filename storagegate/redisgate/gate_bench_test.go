package redisgate_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// BenchmarkRedis compares a gated SET with a plain SET, on a server without and
// with a synced append-only file. One writer shows the latency, sixteen writers of
// different resources show the throughput.
// Run with: go test -run '^$' -bench . ./storagegate/redisgate
func BenchmarkRedis(b *testing.B) {
	for name, options := range map[string][]testserver.RedisOption{"memory": nil, "durable": {testserver.RedisAppendOnly()}} {
		for _, writers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/writers=%d", name, writers), func(b *testing.B) {
				server := testserver.Redis(b, options...)
				client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: writers})
				defer client.Close()
				gate := redisgate.New(client, fencing.Rule{})
				gatetest.Compare(b, writers, func(w, _ int) error {
					return client.Set(b.Context(), keys[w], "a value of some length", 0).Err()
				}, func(w, _ int) error {
					return gate.Do(b.Context(), resources[w], 34, func(tx *redisgate.Tx) error {
						tx.Set(keys[w], "a value of some length")
						return nil
					})
				})
			})
		}
	}
}

// BenchmarkEmptyScript compares an empty script that has the arguments of a gated
// SET with a plain SET. No gate in Lua can be faster.
func BenchmarkEmptyScript(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("memory/writers=%d", writers), func(b *testing.B) {
			server := testserver.Redis(b)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: writers})
			defer client.Close()
			digest, err := client.ScriptLoad(b.Context(), "return 1").Result()
			if err != nil {
				b.Fatal(err)
			}
			gatetest.Compare(b, writers, func(w, _ int) error {
				return client.Set(b.Context(), keys[w], "a value of some length", 0).Err()
			}, func(w, _ int) error {
				return client.EvalSha(b.Context(), digest, []string{redisgate.MarkKey(resources[w]), keys[w]}, "34", "0", "a value of some length").Err()
			})
		})
	}
}

var resources, keys = func() (r [16]fencing.Resource, k [16]string) {
	for i := range r {
		r[i] = fencing.Resource(fmt.Sprintf("orders/%d", i))
		k[i] = redisgate.Key(r[i], ":total")
	}
	return r, k
}()
