package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate/memgate"
)

// newClient returns a client on locks in memory. A program that uses a service calls
// client.Dial instead.
func newClient(options ...lease.Option) *lease.Client {
	locks, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	c, err := lease.New(locks, options...)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Do acquires the lock, runs the function and releases the lock. Each write carries the
// token to a gate, which refuses the writes of a former holder.
func ExampleClient_Do() {
	ctx := context.Background()
	c := newClient()
	defer c.Close(ctx)
	balances := memgate.New[int](fencing.Rule{})

	err := c.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		account := lease.Gate(l, balances)
		if err := account.Enter(ctx); err != nil {
			return err
		}
		return account.Do(ctx, func(balance *int) error {
			*balance += 50
			fmt.Println("token", l.Token(), "balance", *balance)
			return nil
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: token 1 balance 50
}

// A gate that is bound to a lease needs no token and no name, and refuses names that the
// lease does not cover.
func ExampleGate() {
	ctx := context.Background()
	c := newClient()
	defer c.Close(ctx)
	balances := memgate.New[int](fencing.Rule{})

	l, err := c.Acquire(ctx, "account/7", lease.WithSet("account/8"))
	if err != nil {
		log.Fatal(err)
	}
	gate := lease.Gate(l, balances)
	fmt.Println(gate.Do(ctx, func(balance *int) error { *balance -= 10; return nil }))
	fmt.Println(gate.For("account/8").Do(ctx, func(balance *int) error { *balance += 10; return nil }))
	fmt.Println(gate.For("account/9").Enter(ctx))
	// Output:
	// <nil>
	// <nil>
	// write to "account/9": invalid request: the lease covers ["account/7" "account/8"]
}

// TryAcquire does not wait for the lock.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	c := newClient()
	defer c.Close(ctx)

	first, err := c.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.TryAcquire(ctx, "report")
	fmt.Println(errors.Is(err, lease.ErrHeld))

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := c.TryAcquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(second.Token().Newer(first.Token()))
	// Output:
	// true
	// true
}

// A lease on two accounts: both or none, under one token.
func ExampleWithSet() {
	ctx := context.Background()
	c := newClient()
	defer c.Close(ctx)

	l, err := c.Acquire(ctx, "account/7", lease.WithSet("account/8"), lease.WithTTL(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Resources(), l.Token())
	// Output: [account/7 account/8] 1
}

// A semaphore of two permits. Guard the writes of a permit under the name of its slot.
func ExampleWithPermits() {
	ctx := context.Background()
	c := newClient()
	defer c.Close(ctx)

	for range 2 {
		l, err := c.Acquire(ctx, "printers", lease.WithPermits(2))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("slot", l.Slot(), "token", l.Token())
	}
	_, err := c.TryAcquire(ctx, "printers", lease.WithPermits(2))
	fmt.Println(errors.Is(err, lease.ErrHeld))
	// Output:
	// slot 1 token 1
	// slot 2 token 2
	// true
}

// The context of a lease ends when the lease is lost, here because an operator broke it.
func ExampleLease_Context() {
	ctx := context.Background()
	c := newClient()
	defer c.Close(ctx)

	l, err := c.Acquire(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Break(ctx, "job", l.Token()); err != nil {
		log.Fatal(err)
	}
	<-l.Context().Done()
	fmt.Println(errors.Is(context.Cause(l.Context()), lease.ErrLost))
	// Output: true
}

// Hooks report what happens to the leases of a client.
func ExampleWithHooks() {
	ctx := context.Background()
	c := newClient(lease.WithHooks(lease.Hooks{
		Acquired: func(_ context.Context, e lease.Event) { fmt.Println("acquired", e.Resources, e.Token) },
		Released: func(_ context.Context, e lease.Event) { fmt.Println("released", e.Resources, e.Token) },
	}))
	defer c.Close(ctx)

	l, err := c.Acquire(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// acquired [job] 1
	// released [job] 1
}
