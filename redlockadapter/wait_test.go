package redlockadapter_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// acquireWait acquires locks in a new session, and waits for them.
func acquireWait(ctx context.Context, b *redlockadapter.Backend, resources ...fencing.Resource) (Held, error) {
	r := request(1, resources...)
	r.Wait = true
	return b.Acquire(ctx, engine.NewSessionID(), virtualTTL, r)
}

// A release wakes one waiter, so the nodes get few calls, however many wait.
func TestReleaseWakesOneWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes, each = 4, 25
		f := newVirtualFleet(t, 3).init(t)
		holder := f.backend(t)
		held := acquireAlone(t, holder, "a")
		var mu sync.Mutex
		var tokens []fencing.Token
		var waiting sync.WaitGroup
		for range processes {
			b := f.backend(t)
			for range each {
				waiting.Go(func() {
					h, err := acquireWait(t.Context(), b, "a")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					tokens = append(tokens, h.Token)
					mu.Unlock()
					advance(time.Millisecond)
					if err := b.Release(t.Context(), h); err != nil {
						t.Error(err)
					}
				})
			}
		}
		advance(time.Second)
		before := f.nodes[0].countAcquires()
		require.NoError(t, holder.Release(t.Context(), held))
		waiting.Wait()
		require.Len(t, tokens, processes*each)
		require.IsIncreasing(t, tokens)
		require.Less(t, f.nodes[0].countAcquires()-before, 3*processes*each, "acquire calls on one node for %d grants",
			processes*each)
	})
}

// While a lock is held for long, its waiters poll rarely.
func TestWaitersPollRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		holder := f.backend(t)
		held := acquireAlone(t, holder, "a")
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		b := f.backend(t)
		calls := func() (all int) {
			for _, n := range f.nodes {
				all += n.countAcquires()
			}
			return all
		}
		before := calls()
		for range 100 {
			waiting.Go(func() { _, _ = acquireWait(ctx, b, "a") })
		}
		advance(6 * time.Second)
		require.NoError(t, holder.Renew(ctx, []Held{held})[0])
		require.Less(t, calls()-before, 3*6*5, "one contender for the process, a few times per second")
		cancel()
		waiting.Wait()
	})
}

// Two processes with many callers get a similar share of a lock.
func TestProcessesShareALock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		for _, n := range f.nodes {
			n.setDelay(200 * time.Microsecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var grants [2]atomic.Int64
		var work sync.WaitGroup
		for p := range grants {
			b := f.backend(t)
			for range 10 {
				work.Go(func() {
					for ctx.Err() == nil {
						h, err := acquireWait(ctx, b, "a")
						if err != nil {
							continue
						}
						grants[p].Add(1)
						advance(2 * time.Millisecond)
						_ = b.Release(context.WithoutCancel(ctx), h)
					}
				})
			}
		}
		work.Wait()
		a, b := grants[0].Load(), grants[1].Load()
		t.Logf("grants %d and %d", a, b)
		require.Greater(t, a+b, int64(50))
		require.Greater(t, 4*min(a, b), max(a, b))
	})
}

// After a waiter is canceled, those behind it get the lock, in its own process and in
// others.
func TestCanceledWaiterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		holder, leaver, stayer := f.backend(t), f.backend(t), f.backend(t)
		held := acquireAlone(t, holder, "a")
		leaving, leave := context.WithCancel(t.Context())
		canceled, got := make(chan error, 1), make(chan *redlockadapter.Backend, 2)
		go func() {
			_, err := acquireWait(leaving, leaver, "a")
			canceled <- err
		}()
		advance(50 * time.Millisecond)
		for _, b := range []*redlockadapter.Backend{leaver, stayer} {
			go func() {
				h, err := acquireWait(t.Context(), b, "a")
				if err == nil {
					err = b.Release(t.Context(), h)
				}
				if err != nil {
					t.Error(err)
				}
				got <- b
			}()
			advance(50 * time.Millisecond)
		}
		leave()
		require.ErrorIs(t, <-canceled, context.Canceled)
		released := now()
		require.NoError(t, holder.Release(t.Context(), held))
		require.NotEqual(t, <-got, <-got)
		require.Less(t, now().Sub(released), time.Second, "the canceled waiter delays no other")
		status, err := holder.Inspect(t.Context(), "a")
		require.NoError(t, err)
		require.Empty(t, status.Waiters)
	})
}

// waiterNames returns the names of the waiters that a backend shows.
func waiterNames(t *testing.T, b *redlockadapter.Backend, resource fencing.Resource) (names []string) {
	t.Helper()
	status, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	for _, w := range status.Waiters {
		names = append(names, w.Holder)
	}
	return names
}

// waitAs waits for a lock as a holder.
func waitAs(ctx context.Context, b *redlockadapter.Backend, holder string, resource fencing.Resource) (Held, error) {
	r := request(1, resource)
	r.Wait, r.Holder = true, holder
	return b.Acquire(ctx, engine.NewSessionID(), virtualTTL, r)
}

// A waiter that leaves, or is granted the lock, is not shown as a waiter any more.
func TestWaiterThatLeftIsNotShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		holder, waiter := f.backend(t), f.backend(t)
		held := acquireAlone(t, holder, "a")
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := waitAs(ctx, waiter, "gone", "a")
			left <- err
		}()
		advance(time.Second)
		require.Equal(t, []string{"gone"}, waiterNames(t, holder, "a"))
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		advance(100 * time.Millisecond)
		require.Empty(t, waiterNames(t, holder, "a"))

		go func() {
			_, err := waitAs(t.Context(), waiter, "next", "a")
			left <- err
		}()
		advance(time.Second)
		require.NoError(t, holder.Release(t.Context(), held))
		require.NoError(t, <-left)
		advance(100 * time.Millisecond)
		require.Empty(t, waiterNames(t, holder, "a"), "it holds the lock")
	})
}

// A waiter whose process died is not shown for long, and does not keep its place, although another process waits and
// asks again and again.
func TestDeadWaiterIsForgotten(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"alone": 0, "with another waiter": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 3).init(t)
				holder := f.backend(t)
				acquireAlone(t, holder, "a")
				dead := f.backend(t)
				ctx, cancel := context.WithCancel(t.Context())
				var ended sync.WaitGroup
				ended.Go(func() { _, _ = waitAs(ctx, dead, "dead", "a") })
				advance(time.Second)
				for range others {
					b := f.backend(t)
					ended.Go(func() { _, _ = waitAs(ctx, b, "alive", "a") })
				}
				advance(time.Second)
				require.Contains(t, waiterNames(t, holder, "a"), "dead")
				require.NoError(t, dead.Close(t.Context())) // as if the process had died: it sends nothing any more
				advance(6 * time.Second)
				require.Equal(t, []string{"alive"}[:others], append([]string{}, waiterNames(t, holder, "a")...))
				list, err := holder.List(t.Context(), "", "", 10)
				require.NoError(t, err)
				require.Len(t, list[0].Waiters, others)
				cancel()
				ended.Wait()
			})
		})
	}
}

// A process that was closed while it waited does not delay the others.
func TestClosedProcessLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		holder, ends, stays := f.backend(t), f.backend(t), f.backend(t)
		held := acquireAlone(t, holder, "a")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = acquireWait(ctx, ends, "a") }()
		advance(50 * time.Millisecond)
		granted := make(chan Held)
		go func() {
			h, err := acquireWait(t.Context(), stays, "a")
			if err != nil {
				t.Error(err)
			}
			granted <- h
		}()
		advance(50 * time.Millisecond)
		cancel()
		require.NoError(t, ends.Close(t.Context()))
		released := now()
		require.NoError(t, holder.Release(t.Context(), held))
		require.True(t, (<-granted).Token.Newer(held.Token))
		require.Less(t, now().Sub(released), time.Second)
	})
}

// Wake-ups are hints. If all of them are lost, a waiter still gets the lock soon.
func TestLostWakeUpsOnlyDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		for _, n := range f.nodes {
			n.mini.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
				if command == "PUBLISH" {
					c.WriteInt(1)
					return true
				}
				return n.before(c, command, args...)
			})
		}
		holder, waiter := f.backend(t), f.backend(t)
		held := acquireAlone(t, holder, "a")
		granted := make(chan error)
		go func() {
			_, err := acquireWait(t.Context(), waiter, "a")
			granted <- err
		}()
		advance(time.Second)
		released := now()
		require.NoError(t, holder.Release(t.Context(), held))
		require.NoError(t, <-granted)
		require.Less(t, now().Sub(released), time.Second)
	})
}

// A wake-up gives the next process the lock at once.
func TestWakeUpIsImmediate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 5).init(t)
		holder, waiter := f.backend(t), f.backend(t)
		for range 10 {
			held := acquireAlone(t, holder, "a")
			granted := make(chan Held)
			go func() {
				h, err := acquireWait(t.Context(), waiter, "a")
				if err != nil {
					t.Error(err)
				}
				granted <- h
			}()
			advance(time.Second)
			released := now()
			require.NoError(t, holder.Release(t.Context(), held))
			next := <-granted
			require.Less(t, now().Sub(released), 20*time.Millisecond)
			require.NoError(t, waiter.Release(t.Context(), next))
		}
	})
}

// Overlapping sets of several processes do not deadlock: no waiter holds a part of its
// set while it waits.
func TestSetsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		sets := [][]fencing.Resource{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"a", "b", "c"}, {"b"}}
		var holding [3]atomic.Int32
		var work sync.WaitGroup
		for p := range 3 {
			b := f.backend(t)
			for w := range 5 {
				rng := rand.New(rand.NewPCG(uint64(p), uint64(w)))
				work.Go(func() {
					for range 10 {
						set := sets[rng.IntN(len(sets))]
						h, err := acquireWait(t.Context(), b, set...)
						if err != nil {
							t.Error(err)
							return
						}
						for _, name := range set {
							require.EqualValues(t, 1, holding[name[0]-'a'].Add(1))
						}
						advance(time.Duration(rng.IntN(3)) * time.Millisecond)
						for _, name := range set {
							holding[name[0]-'a'].Add(-1)
						}
						if err := b.Release(t.Context(), h); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		work.Wait()
	})
}
