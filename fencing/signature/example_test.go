package signature_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
)

// A gate accepts only tokens that the lock service has signed for its resource.
func ExampleVerifier() {
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	signer, _ := signature.NewSigner(private)                          // in the lock service
	verifier, _ := signature.NewVerifier(time.Now, signer.PublicKey()) // in the gate
	signed, _ := signer.Sign("report", 34, time.Now().Add(time.Hour))  // the holder sends it with its write
	fmt.Println(verifier.Verify("report", signed))                     // then fence.Admit("report", 34)
	_, err := verifier.Verify("report", "9007199254740991")            // made up
	fmt.Println(errors.Is(err, fencing.ErrUnsigned))
	// Output:
	// 34 <nil>
	// true
}
