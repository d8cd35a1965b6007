package httpgate

import (
	"fmt"
	"time"
)

// defaultBuffer is how much of a body is read before the turn is taken.
const defaultBuffer = 1 << 20

// Option changes a Gate, or says why it cannot.
type Option func(*Gate) error

// Wait bounds how long a request waits for its turn; it is then answered with
// 503. Without it a request waits as long as its client does.
func Wait(limit time.Duration) Option {
	return func(g *Gate) error {
		if limit <= 0 {
			return fmt.Errorf("the wait of %v must be above 0; leave the option out to wait without a limit", limit)
		}
		g.wait = limit
		return nil
	}
}

// Buffer sets how many bytes of a body are read before the request takes its
// turn, 1 MiB unless set. A body that is longer is streamed during the turn, so
// a client that stops in the middle of it holds up the resource.
func Buffer(bytes int64) Option {
	return func(g *Gate) error {
		if bytes < 0 {
			return fmt.Errorf("the buffer of %d bytes must not be negative", bytes)
		}
		g.buffer = bytes
		return nil
	}
}

// GateReads gates GET, HEAD, OPTIONS and TRACE like writes, for handlers that
// change data on a read.
func GateReads() Option {
	return func(g *Gate) error {
		g.gateReads = true
		return nil
	}
}
