package httpgate

import (
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate/callgate"
)

// defaultBuffer is how many bytes of a body are read before the request waits
// for its resource.
const defaultBuffer = 1 << 20

// Option configures a Gate. It returns an error if its value is invalid.
type Option func(*Gate) error

// Wait limits how long a request waits for its resource before it is answered
// with 503. Without it a request waits as long as its client does.
func Wait(limit time.Duration) Option {
	return func(g *Gate) error {
		if limit <= 0 {
			return fmt.Errorf("the wait of %v must be above 0; omit the option to wait without a limit", limit)
		}
		g.wait = limit
		return nil
	}
}

// Buffer sets how many bytes of a body are read before the request waits for its
// resource. The default is 1 MiB. A longer body is streamed while the request
// holds the resource, so a client that stops in the middle blocks the resource.
func Buffer(bytes int64) Option {
	return func(g *Gate) error {
		if bytes < 0 {
			return fmt.Errorf("the buffer of %d bytes must not be negative", bytes)
		}
		g.buffer = bytes
		return nil
	}
}

// GateReads gates GET, HEAD, OPTIONS and TRACE like writes. Use it for handlers
// that change data on such a request.
func GateReads() Option {
	return func(g *Gate) error {
		g.gateReads = true
		return nil
	}
}

// WithVerifier makes the gate accept signed tokens only. A write with a number, with
// no token or with a signature that v refuses is answered with 400.
func WithVerifier(v *signature.Verifier) Option {
	return func(g *Gate) error {
		if v == nil {
			return errors.New("the verifier is nil; omit the option to accept tokens without a signature")
		}
		callgate.WithVerifier(v)(g.Guard)
		return nil
	}
}
