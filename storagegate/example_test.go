package storagegate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/memgate"
)

// withdraw works with every gate: it enters before it reads, and its write
// carries the token of the lease.
func withdraw(ctx context.Context, gate *memgate.Gate[int], token fencing.Token, amount int, pause func()) error {
	if err := gate.Enter(ctx, "account/7", token); err != nil {
		return err
	}
	balance, _, err := gate.Get(ctx, "account/7")
	if err != nil {
		return err
	}
	pause() // a garbage collection, a suspended machine, a slow network
	return gate.Do(ctx, "account/7", token, func(value *int) error {
		*value = balance - amount
		return nil
	})
}

// Two holders withdraw from one account. The first holder is paused between its
// read and its write. Its lease expires, the second holder gets the next token
// and writes. When the first holder resumes, the gate refuses its write.
func Example_guardedWrite() {
	ctx := context.Background()
	gate := memgate.New[int](fencing.Rule{})
	if err := gate.Do(ctx, "account/7", fencing.None, func(balance *int) error {
		*balance = 100
		return nil
	}); err != nil {
		panic(err)
	}
	err := withdraw(ctx, gate, 33, 10, func() {
		fmt.Println("second holder:", withdraw(ctx, gate, 34, 20, func() {}))
	})
	fmt.Println("first holder:", err)
	fmt.Println("stop and acquire again:", errors.Is(err, fencing.ErrStale))
	balance, mark, err := gate.Get(ctx, "account/7")
	fmt.Println("balance:", balance, "mark:", mark, err)
	// Output:
	// second holder: <nil>
	// first holder: stale fencing token 33 for "account/7": 34 has been admitted; the lease is lost, stop writing
	// stop and acquire again: true
	// balance: 80 mark: 34 <nil>
}

// An audit hook logs every decision of a gate.
func ExampleMonitor_Audit() {
	ctx := context.Background()
	gate := memgate.New[string](fencing.Rule{})
	gate.Audit(func(_ context.Context, d storagegate.Decision) {
		fmt.Printf("%s: token %d, mark %d: %s\n", d.Resource, d.Token, d.Mark, d.Outcome)
	})
	for _, token := range []fencing.Token{34, 33} {
		_ = gate.Enter(ctx, "report", token)
	}
	fmt.Printf("%+v\n", gate.Counts())
	// Output:
	// report: token 34, mark 34: admitted
	// report: token 33, mark 34: stale
	// {Admitted:1 Stale:1 Tokenless:0 JumpExceeded:0 Unsigned:0}
}
