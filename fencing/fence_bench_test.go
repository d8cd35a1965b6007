package fencing_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/leased-project/leased/fencing"
)

// Run with: go test -run '^$' -bench Admit -cpu 1,2 ./fencing

func BenchmarkAdmitEqual(b *testing.B) {
	var f fencing.Fence
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Admit(orders, 7); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdmitRaise(b *testing.B) {
	var f fencing.Fence
	token := fencing.None
	b.ReportAllocs()
	for b.Loop() {
		token++
		if err := f.Admit(orders, token); err != nil {
			b.Fatal(err)
		}
	}
}

// Each goroutine has its own resources, like writers of different data. With
// more cores the time per admission must decrease.
func BenchmarkAdmitParallel(b *testing.B) {
	var f fencing.Fence
	var worker atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var own [64]fencing.Resource
		n := worker.Add(1)
		for i := range own {
			own[i] = fencing.Resource(fmt.Sprintf("worker/%d/%d", n, i))
		}
		token := fencing.None
		for pb.Next() {
			token++
			if err := f.Admit(own[token&63], token); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
