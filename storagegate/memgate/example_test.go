package memgate_test

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/memgate"
)

func ExampleGate() {
	ctx := context.Background()
	gate := memgate.New[int](fencing.Rule{})
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := gate.Do(ctx, "account/7", token, func(balance *int) error { *balance += 10; return nil })
		fmt.Println(err)
	}
	balance, mark, err := gate.Get(ctx, "account/7")
	fmt.Println(balance, mark, err)
	// Output:
	// <nil>
	// stale fencing token 33 for "account/7": 34 has been admitted; the lease is lost, stop writing
	// 10 34 <nil>
}
