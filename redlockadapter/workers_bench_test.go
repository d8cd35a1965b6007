package redlockadapter_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leased-project/leased/fencing"
)

// BenchmarkWorkers has workers acquire and release locks of their own, which share the connections.
func BenchmarkWorkers(b *testing.B) {
	for _, workers := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			client := newPairClient(b)
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var working sync.WaitGroup
			for w := range workers {
				working.Go(func() {
					name := fencing.Resource(fmt.Sprintf("worker-%d", w))
					for left.Add(-1) >= 0 {
						l, err := client.Acquire(b.Context(), name)
						if err == nil {
							err = l.Release(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			working.Wait()
		})
	}
}
