package callgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/callgate"
)

const orders fencing.Resource = "orders/42"

func nothing() error { return nil }

func TestCallAppliesTheRule(t *testing.T) {
	ctx := t.Context()
	guard := callgate.New(callgate.Memory(fencing.Rule{MaxJump: 1000}))
	require.NoError(t, guard.Call(ctx, orders, fencing.None, nothing), "a resource that was never fenced needs no token")
	require.NoError(t, guard.Call(ctx, orders, 34, nothing))
	require.NoError(t, guard.Call(ctx, orders, 34, nothing), "the holder's second write")

	ran := func() error { t.Error("a refused call ran"); return nil }
	var stale *fencing.StaleError
	require.ErrorAs(t, guard.Call(ctx, orders, 33, ran), &stale)
	require.Equal(t, fencing.StaleError{Resource: orders, Token: 33, Mark: 34}, *stale)
	require.ErrorIs(t, guard.Call(ctx, orders, fencing.None, ran), fencing.ErrNoToken)
	require.ErrorIs(t, guard.Call(ctx, orders, 5000, ran), fencing.ErrJump)
	require.ErrorIs(t, guard.Call(ctx, "", 34, ran), fencing.ErrInvalidResource)
	require.ErrorIs(t, guard.Call(ctx, orders, fencing.MaxToken+1, ran), fencing.ErrInvalidToken)

	mark, err := guard.Mark(ctx, orders)
	require.NoError(t, err)
	require.Equal(t, fencing.Token(34), mark)
	require.Equal(t, storagegate.Counts{Admitted: 3, Stale: 1, Tokenless: 1, JumpExceeded: 1}, guard.Counts())
}

// Calls choose the names of their resources. Only a mark may take memory.
func TestMemoryKeepsOnlyMarks(t *testing.T) {
	guard := callgate.New(callgate.Memory(fencing.Rule{MaxJump: 10}))
	inUse := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	const names = 20000
	before := inUse()
	for i := range names {
		name := fencing.Resource(fmt.Sprintf("orders/%d", i))
		require.NoError(t, guard.Call(t.Context(), name, fencing.None, nothing))
		require.ErrorIs(t, guard.Call(t.Context(), name, 1000, nothing), fencing.ErrJump)
	}
	require.Less(t, (inUse()-before)/names, int64(40), "bytes for each name")
	runtime.KeepAlive(guard)
}

func TestEnter(t *testing.T) {
	guard := callgate.New(callgate.Memory(fencing.Rule{}))
	require.ErrorIs(t, guard.Enter(t.Context(), orders, fencing.None), fencing.ErrNoToken)
	require.NoError(t, guard.Enter(t.Context(), orders, 7))
	require.ErrorIs(t, guard.Enter(t.Context(), orders, 6), fencing.ErrStale)
	require.ErrorIs(t, guard.Enter(t.Context(), orders, fencing.None), fencing.ErrStale)
}

// A call with a newer token must not run concurrently with an older call, which
// has passed its check and may still write.
func TestNewerCallWaitsForTheRunningCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := callgate.New(callgate.Memory(fencing.Rule{}))
		release := make(chan struct{})
		var order []string
		go guard.Call(t.Context(), orders, 1, func() error {
			<-release
			order = append(order, "old")
			return nil
		})
		synctest.Wait()
		done := make(chan error, 1)
		go func() {
			done <- guard.Call(t.Context(), orders, 2, func() error {
				order = append(order, "new")
				return nil
			})
		}()
		synctest.Wait()
		require.Empty(t, done, "the newer call must wait")
		require.NoError(t, guard.Call(t.Context(), "orders/43", 1, nothing), "other resources do not wait")
		close(release)
		require.NoError(t, <-done)
		require.Equal(t, []string{"old", "new"}, order)
	})
}

// The token is checked when the call gets the resource, not when it arrives.
func TestQueuedCallThatBecomesStaleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := callgate.New(callgate.Memory(fencing.Rule{}))
		release := make(chan struct{})
		results := make(map[fencing.Token]error)
		var mu sync.Mutex
		call := func(token fencing.Token, body func() error) {
			err := guard.Call(t.Context(), orders, token, body)
			mu.Lock()
			defer mu.Unlock()
			results[token] = err
		}
		go call(2, func() error { <-release; return nil })
		synctest.Wait()
		go call(3, nothing)
		synctest.Wait()
		go call(1, nothing)
		synctest.Wait()
		close(release)
		synctest.Wait()
		require.NoError(t, results[2])
		require.NoError(t, results[3])
		require.ErrorIs(t, results[1], fencing.ErrStale)
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := callgate.New(callgate.Memory(fencing.Rule{}))
		release := make(chan struct{})
		go guard.Call(t.Context(), orders, 1, func() error { <-release; return nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := guard.Call(ctx, orders, 2, func() error { t.Error("ran"); return nil })
		require.ErrorIs(t, err, callgate.ErrNotAdmitted)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		mark, _ := guard.Mark(t.Context(), orders)
		require.Equal(t, fencing.Token(1), mark, "a call that did not run must not raise the mark")
		close(release)
	})
}

func TestCancelledCallDoesNotRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	guard := callgate.New(callgate.Memory(fencing.Rule{}))
	for range 100 {
		err := guard.Call(ctx, orders, 1, func() error { t.Error("ran"); return nil })
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestPanicReleasesTheResource(t *testing.T) {
	guard := callgate.New(callgate.Memory(fencing.Rule{}))
	require.Panics(t, func() { guard.Call(t.Context(), orders, 1, func() error { panic("handler") }) })
	require.NoError(t, guard.Call(t.Context(), orders, 1, nothing))
}

type brokenMarks struct{ callgate.Marks }

func (brokenMarks) Admit(context.Context, fencing.Resource, fencing.Token) error {
	return errors.New("disk full")
}

func TestCallDoesNotRunIfTheMarkIsNotStored(t *testing.T) {
	guard := callgate.New(brokenMarks{})
	err := guard.Call(t.Context(), orders, 1, func() error { t.Error("ran"); return nil })
	require.ErrorIs(t, err, callgate.ErrNotAdmitted)
	require.ErrorContains(t, err, "disk full")
	require.Zero(t, guard.Counts())
}

// Many callers use random tokens. Calls for one resource must run one at a time,
// and their tokens must never decrease.
func TestNoCallRunsAfterANewerOne(t *testing.T) {
	guard := callgate.New(callgate.Memory(fencing.Rule{}))
	type calls struct {
		busy bool
		last fencing.Token
	}
	byResource := map[fencing.Resource]*calls{"a": {}, "b": {}, "c": {}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				resource := fencing.Resource("abc"[i%3 : i%3+1])
				token := fencing.Token(i/5 + 1 + rand.IntN(20))
				_ = guard.Call(t.Context(), resource, token, func() error {
					c := byResource[resource] // not locked, so that -race detects concurrent calls
					if c.busy || token < c.last {
						t.Errorf("token %d ran on %s after %d, busy %v", token, resource, c.last, c.busy)
					}
					c.busy, c.last = true, token
					c.busy = false
					return nil
				})
			}
		})
	}
	wg.Wait()
}
