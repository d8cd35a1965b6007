package callgate_test

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// A Guard runs calls to a device that cannot compare tokens itself.
func ExampleGuard() {
	ctx := context.Background()
	guard := callgate.New(callgate.Memory(fencing.Rule{}))
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := guard.Call(ctx, "printer/3", token, func() error {
			fmt.Println("printing with token", token)
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// printing with token 34
	// <nil>
	// stale fencing token 33 for "printer/3": 34 has been admitted; the lease is lost, stop writing
}
