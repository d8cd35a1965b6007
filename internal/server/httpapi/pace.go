package httpapi

import (
	"io"
	"net/http"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// A slow client keeps a connection, a goroutine and perhaps a body. The deadlines below
// belong to one step of a request and not to the whole: a call that waits for a lock
// answers late, and a watch never ends.

// pace begins a request: its body must arrive within BodyTimeout, and each write to the
// returned writer allows SendTimeout. net/http removes the deadline when the whole body
// was read.
func (h *Handler) pace(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // of the former request on the connection
	if r.Body != nil && r.Body != http.NoBody {
		_ = control.SetReadDeadline(deadline(h.Chain.Limits.BodyTimeout))
	}
	return PacedWriter{w, h.Chain.Limits.SendTimeout}
}

// deadline is a time on the clock of the network connections.
func deadline(after time.Duration) time.Time { return engine.MonotonicClock().Now().Time().Add(after) }

// pacedBody is the body of an upload. Each read allows SendTimeout.
type pacedBody struct {
	io.ReadCloser
	w     http.ResponseWriter
	limit time.Duration
}

// Read reads the next part.
func (b *pacedBody) Read(p []byte) (int, error) {
	_ = http.NewResponseController(b.w).SetReadDeadline(deadline(b.limit))
	return b.ReadCloser.Read(p)
}

// PacedWriter is the writer of an answer. Each write allows the client Limit to read, as far as TCP shows.
type PacedWriter struct {
	http.ResponseWriter
	Limit time.Duration
}

// Write writes the next part.
func (p PacedWriter) Write(data []byte) (int, error) {
	p.begin()
	return p.ResponseWriter.Write(data)
}

// FlushError sends what was written.
func (p PacedWriter) FlushError() error {
	p.begin()
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// begin sets the deadline of a write.
func (p PacedWriter) begin() {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(deadline(p.Limit))
}

// Unwrap lets http.ResponseController find the connection.
func (p PacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
