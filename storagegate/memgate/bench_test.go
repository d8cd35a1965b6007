package memgate_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/memgate"
)

// BenchmarkMemory compares a gated write with a plain write, which looks up the
// value, locks it and changes it.
// Run with: go test -run '^$' -bench . ./storagegate/memgate
func BenchmarkMemory(b *testing.B) {
	const count = 1024
	type plain struct {
		sync.Mutex
		value int
	}
	var values sync.Map
	gate := memgate.New[int](fencing.Rule{})
	var names [count]fencing.Resource
	for i := range names {
		names[i] = fencing.Resource(fmt.Sprintf("account/%d", i))
		values.Store(names[i], &plain{})
		if err := gate.Enter(b.Context(), names[i], 34); err != nil {
			b.Fatal(err)
		}
	}
	ctx := b.Context()
	gatetest.Compare(b, 1, func(_, n int) error {
		found, _ := values.Load(names[n%count])
		p := found.(*plain)
		p.Lock()
		p.value++
		p.Unlock()
		return nil
	}, func(_, n int) error {
		return gate.Do(ctx, names[n%count], 34, func(value *int) error { *value++; return nil })
	})
}

// BenchmarkDo measures a gated write alone.
func BenchmarkDo(b *testing.B) {
	gate, ctx := memgate.New[int](fencing.Rule{}), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := gate.Do(ctx, "orders", 34, increment); err != nil {
			b.Fatal(err)
		}
	}
}

func increment(value *int) error { *value++; return nil }

func TestDoDoesNotAllocate(t *testing.T) {
	gate, ctx := memgate.New[int](fencing.Rule{}), t.Context()
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if gate.Do(ctx, "orders", 34, increment) != nil {
			t.Fail()
		}
	}))
}
