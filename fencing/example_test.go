package fencing_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// A Fence refuses the older of two holders after the newer one has entered.
func ExampleFence() {
	var fence fencing.Fence
	fmt.Println(fence.Enter("report", 33)) // the first holder enters before it reads
	fmt.Println(fence.Enter("report", 34)) // its lease expires, and the next holder enters
	fmt.Println(fence.Admit("report", 33)) // the first holder resumes after a pause and writes
	// Output:
	// <nil>
	// <nil>
	// stale fencing token 33 for "report": 34 has been admitted; the lease is lost, stop writing
}

// A gate applies the rule to a mark that it has read in the same transaction.
func ExampleRule() {
	var rule fencing.Rule // with the default bound on the jump
	const mark = 34
	fmt.Println(rule.Admit("report", mark, 34) == nil)
	fmt.Println(errors.Is(rule.Admit("report", mark, 33), fencing.ErrStale))
	fmt.Println(errors.Is(rule.Admit("report", mark, fencing.MaxToken), fencing.ErrJump))
	// Output:
	// true
	// true
	// true
}

// A parent process passes its lease to a child.
func ExampleEnviron() {
	fmt.Println(strings.Join(fencing.Environ("report", 34), "\n"))
	// Output:
	// LEASED_RESOURCE=report
	// LEASED_TOKEN=34
}
