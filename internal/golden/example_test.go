package golden_test

import (
	"testing"

	"github.com/leased-project/leased/internal/golden"
)

// A test of a format encodes fixed values and compares them with a file.
func ExampleHex() {
	_ = func(t *testing.T) {
		encoded := []byte{1, 2, 3}
		golden.Hex(t, "values.hex", encoded)
	}
	// Output:
}
