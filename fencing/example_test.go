package fencing_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

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

// A gate accepts only tokens that the lock service has signed for its resource.
func ExampleVerifier() {
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	signer, _ := fencing.NewSigner(private)                           // in the lock service
	verifier, _ := fencing.NewVerifier(time.Now, signer.PublicKey())  // in the gate
	signed, _ := signer.Sign("report", 34, time.Now().Add(time.Hour)) // the holder sends it with its write
	fmt.Println(verifier.Verify("report", signed))                    // then fence.Admit("report", 34)
	_, err := verifier.Verify("report", "9007199254740991")           // made up
	fmt.Println(errors.Is(err, fencing.ErrMalformedSigned))
	// Output:
	// 34 <nil>
	// true
}
