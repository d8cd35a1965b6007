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
	return pacedWriter{w, h.Chain.Limits.SendTimeout}
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

// pacedWriter is the writer of an answer. Each write allows the client that long to
// read, as far as TCP shows.
type pacedWriter struct {
	http.ResponseWriter
	limit time.Duration
}

// Write writes the next part.
func (p pacedWriter) Write(data []byte) (int, error) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(deadline(p.limit))
	return p.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController find the connection.
func (p pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
