package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

var waitTests = []conformance{
	{"a waiter is granted on release", func(f *fixture) {
		l := f.acquire(f.client(), f.name("a"))
		waiter := f.start(f.name("a"))
		f.release(l)
		next := waiter.granted()
		require.True(f, next.Token().Newer(l.Token()))
		require.NoError(f, next.Err())
	}},
	{"waiters are served in order", func(f *fixture) {
		if !f.FIFO {
			return // the engine does not promise an order across clients
		}
		l := f.acquire(f.client(), f.name("a"))
		var waiters []*pending
		for range 5 {
			waiters = append(waiters, f.start(f.name("a")))
		}
		f.release(l)
		for i, w := range waiters {
			next := w.granted()
			require.True(f, next.Token().Newer(l.Token()))
			for _, later := range waiters[i+1:] {
				require.True(f, later.isWaiting())
			}
			l = next
			f.release(l)
		}
	}},
	{"many waiters", func(f *fixture) {
		const clients, workers, rounds = 3, 8, 4
		var (
			mu     sync.Mutex
			inside int
			tokens []fencing.Token
			wg     sync.WaitGroup
		)
		for range clients {
			c := f.client()
			for range workers {
				wg.Go(func() {
					for range rounds {
						err := c.Do(f.ctx, f.name("a"), func(_ context.Context, l *lease.Lease) error {
							mu.Lock()
							inside++
							tokens = append(tokens, l.Token())
							alone := inside == 1
							mu.Unlock()
							defer func() { mu.Lock(); inside--; mu.Unlock() }()
							if !alone {
								return fmt.Errorf("two holders at once")
							}
							return nil
						})
						if err != nil {
							f.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		require.Len(f, tokens, clients*workers*rounds, "every acquire is granted")
		require.IsIncreasing(f, tokens)
	}},
	{"cancellation while waiting", func(f *fixture) {
		l := f.acquire(f.client(), f.name("a"))
		first, second := f.start(f.name("a")), f.start(f.name("a"))
		first.cancel()
		f.wait(first.done)
		require.ErrorIs(f, first.err, context.Canceled)
		require.Nil(f, first.lease)
		f.release(l)
		second.granted()
	}},
	{"close while waiting", func(f *fixture) {
		l := f.acquire(f.client(), f.name("a"))
		waiter := f.start(f.name("a"))
		closeErr := waiter.client.Close(f.ctx)
		f.confirmed(closeErr)
		f.wait(waiter.done)
		require.ErrorIs(f, waiter.err, lease.ErrClosed)
		f.release(l)
		if closeErr == nil { // it has left the queue
			_, err := f.client().Acquire(f.ctx, f.name("a"), lease.WithWaitLimit(f.TTL/2))
			f.confirmed(err)
		}
	}},
	{"wait limit", func(f *fixture) {
		l := f.acquire(f.client(), f.name("a"))
		waiter := f.start(f.name("a"), lease.WithWaitLimit(f.TTL/2))
		f.wait(waiter.done)
		for unanswered(waiter.err) || f.busy && waiter.err == nil {
			if waiter.err == nil { // the lease was not renewed in time; otherwise the leader changed at the end of the wait
				require.ErrorIs(f, l.Err(), engine.ErrLost, "there are two holders")
				l = waiter.lease
			}
			waiter = f.start(f.name("a"), lease.WithWaitLimit(f.TTL/2))
			f.wait(waiter.done)
		}
		require.ErrorIs(f, waiter.err, engine.ErrHeld)
		require.NotErrorIs(f, waiter.err, context.DeadlineExceeded, "no context ended")
		f.release(l)
		f.acquire(f.client(), f.name("a"))
	}},
	{"a deadline while waiting", func(f *fixture) {
		f.acquire(f.client(), f.name("a"))
		ctx, cancel := context.WithTimeout(f.ctx, f.TTL/2)
		defer cancel()
		_, err := f.client().Acquire(ctx, f.name("a"))
		require.ErrorIs(f, err, context.DeadlineExceeded)
	}},
	{"election", func(f *fixture) {
		type term struct {
			candidate int
			token     fencing.Token
		}
		terms := make(chan term)
		stepDown := make(chan struct{})
		ctx, cancel := context.WithCancel(f.ctx)
		var wg sync.WaitGroup
		for candidate := range 2 {
			c := f.client(lease.WithName(fmt.Sprint("candidate ", candidate)))
			wg.Go(func() {
				err := c.Elect(ctx, f.name("leader"), func(ctx context.Context, l *lease.Lease) error {
					select {
					case terms <- term{candidate, l.Token()}:
					case <-ctx.Done():
						return nil
					}
					select {
					case <-stepDown:
					case <-ctx.Done():
					}
					return nil
				})
				if !errors.Is(err, context.Canceled) {
					f.Errorf("Elect returned %v", err)
				}
			})
		}
		seen := make(chan lease.Leader, 100)
		observer := f.client()
		wg.Go(func() { _ = observer.Observe(ctx, f.name("leader"), func(l lease.Leader) { seen <- l }) })

		last := fencing.None
		for range 4 {
			now := receive(f, terms)
			require.True(f, now.token.Newer(last))
			last = now.token
			for {
				if l := receive(f, seen); l.Token == now.token {
					require.Equal(f, fmt.Sprint("candidate ", now.candidate), l.Holder)
					break
				}
			}
			select {
			case stepDown <- struct{}{}:
			case <-f.ctx.Done():
				require.FailNow(f, "the leader does not step down")
			}
		}
		cancel()
		wg.Wait()
	}},
}
