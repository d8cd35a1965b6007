package transport_test

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/raftstore/transport"
)

// Without TLS a node listens on loopback addresses only.
func ExampleListen() {
	_, err := transport.Listen(transport.Config{Address: "0.0.0.0:7421"})
	fmt.Println(errors.Is(err, transport.ErrConfig))
	// Output: true
}
