package redisgate_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
	for name, options := range map[string][]testserver.RedisOption{"memory": nil,
		"durable": {testserver.RedisAppendOnly()}} {
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
				return client.EvalSha(b.Context(), digest, []string{redisgate.MarkKey(resources[w]), keys[w]}, "34", "0",
					"a value of some length").Err()
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

// BenchmarkDo measures a gated SET alone.
func BenchmarkDo(b *testing.B) {
	gate, ctx := redisgate.New(empty(b), fencing.Rule{}), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := gate.Do(ctx, resources[0], 34, set); err != nil {
			b.Fatal(err)
		}
	}
}

func set(tx *redisgate.Tx) error {
	tx.Set(keys[0], "a value of some length")
	return nil
}

// TestDoAllocations bounds the allocations of a gated SET in the gate and the client of
// Redis. Lower the bound after an improvement.
func TestDoAllocations(t *testing.T) {
	gate, ctx := redisgate.New(empty(t), fencing.Rule{}), t.Context()
	const most = 20 // 17 were measured
	got := testing.AllocsPerRun(200, func() {
		if gate.Do(ctx, resources[0], 34, set) != nil {
			t.Fail()
		}
	})
	t.Logf("%v allocations", got)
	require.LessOrEqual(t, got, float64(most))
}
