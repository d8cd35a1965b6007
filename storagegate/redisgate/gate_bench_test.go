package redisgate_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// BenchmarkGatedSet measures a gated SET against the same SET without a gate,
// in turns on one server. The metric "ratio" is gated time by plain time. One
// writer shows latency, sixteen on different resources show throughput.
func BenchmarkGatedSet(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			server := testserver.Redis(b)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: writers, MinIdleConns: writers})
			defer client.Close()
			gate := redisgate.New(client, fencing.Rule{})
			compare(b, writers,
				func(ctx context.Context, w int) error {
					return client.Set(ctx, keys[w], "a value of some length", 0).Err()
				},
				func(ctx context.Context, w int) error {
					return gate.Do(ctx, resources[w], 34, func(tx *redisgate.Tx) error {
						tx.Set(keys[w], "a value of some length")
						return nil
					})
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

// compare runs short rounds of both, one after the other, until b is satisfied.
// It reports medians: a machine that is busy with something else for a while
// then spoils some rounds, and not the result.
func compare(b *testing.B, writers int, plain, gated func(ctx context.Context, writer int) error) {
	const round = 160
	var spent [2][]float64
	var ratios []float64
	for b.Loop() {
		for i, write := range []func(context.Context, int) error{plain, gated} {
			start := time.Now()
			var all sync.WaitGroup
			for w := range writers {
				all.Go(func() {
					for range round / writers {
						if err := write(b.Context(), w); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			spent[i] = append(spent[i], float64(time.Since(start).Nanoseconds())/round)
		}
		last := len(ratios)
		ratios = append(ratios, spent[1][last]/spent[0][last])
	}
	b.ReportMetric(median(spent[0]), "plain-ns/write")
	b.ReportMetric(median(spent[1]), "gated-ns/write")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
