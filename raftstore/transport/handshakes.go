package transport

import (
	"errors"
	"net"
	"slices"
	"sync"
)

// maxHandshakes bounds the incoming connections that are not identified yet. A peer is
// identified within a few round trips, so under load the oldest of these connections are
// those of callers that never show a certificate.
const maxHandshakes = 256

// errGaveWay is logged for a connection that was closed for a later one.
var errGaveWay = errors.New("too many connections without a certificate: closed the oldest")

// handshakes has the incoming connections that are not identified yet. All methods may be
// called concurrently. The zero value is empty.
type handshakes struct {
	mu      sync.Mutex
	pending []net.Conn // oldest first
}

// begin adds a connection. It closes the oldest one if there are too many.
func (h *handshakes) begin(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = append(h.pending, conn)
	if len(h.pending) > maxHandshakes {
		oldest := h.pending[0]
		h.pending = h.pending[1:]
		oldest.Close()
	}
}

// end removes a connection that is identified or closed. It reports whether the connection
// had not given way to a later one.
func (h *handshakes) end(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.pending, conn)
	if i < 0 {
		return false
	}
	h.pending = slices.Delete(h.pending, i, i+1)
	return true
}
