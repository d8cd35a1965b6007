package fencing_test

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
)

func ExampleFence() {
	var fence fencing.Fence
	fmt.Println(fence.Enter("report", 33)) // the first holder, before it reads
	fmt.Println(fence.Enter("report", 34)) // its lease ran out; the next holder
	fmt.Println(fence.Admit("report", 33)) // the first one wakes up and writes
	// Output:
	// <nil>
	// <nil>
	// stale fencing token 33 for "report": 34 has been admitted; the lease has passed on, stop writing
}
