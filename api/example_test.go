package api_test

import (
	"bytes"
	"fmt"

	"github.com/leased-project/leased/api"
)

// A generator of clients reads the description.
func Example() {
	fmt.Println(bytes.Contains(api.OpenAPI, []byte("/v1/acquire:")))
	// Output: true
}
