package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
)

// Two clients share locks in the memory of one process, as two processes share a
// service.
func Example() {
	ctx := context.Background()
	locks, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	a, err := lease.New(locks, lease.WithName("a"))
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close(ctx)
	b, err := lease.New(locks, lease.WithName("b"))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)

	l, err := a.Acquire(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	_, err = b.TryAcquire(ctx, "job")
	fmt.Println(errors.Is(err, lease.ErrHeld))
	status, err := b.Inspect(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Holders[0].Holder, status.Holders[0].Token == l.Token())
	// Output:
	// true
	// a true
}

// Fail simulates a service that cannot be reached.
func ExampleBackend_Fail() {
	ctx := context.Background()
	locks, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	locks.Fail(engine.ErrUnavailable)
	_, err = locks.Inspect(ctx, "job")
	fmt.Println(err)
	locks.Fail(nil)
	// Output: lock service is unavailable
}
