package secret_test

import (
	"fmt"

	"github.com/leased-project/leased/internal/secret"
)

// A service stores the hash of a secret, and messages do not show it.
func Example() {
	s := secret.New()
	stored := secret.HashOf(s)
	fmt.Println("the caller is known:", secret.HashOf(s) == stored)
	fmt.Println(secret.Hide("cannot open " + s))
	fmt.Println(secret.CheckAddress("192.0.2.1:7420", nil, s) != nil)
	// Output:
	// the caller is known: true
	// cannot open (a secret, not shown)
	// true
}
