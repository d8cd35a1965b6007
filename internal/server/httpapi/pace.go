package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// bodyTimeout bounds the time until the body of a call is read.
	bodyTimeout = 10 * time.Second
	// progressTimeout bounds the time until the next part of a file is read, and until
	// the client has read the next part of an answer, as far as TCP shows.
	progressTimeout = 20 * time.Second
)

// A slow client keeps a connection, a goroutine and perhaps a body. The deadlines below
// belong to one step of a request and not to the whole: a call that waits for a lock
// answers late, and a watch never ends.

// pace begins a request: its body must arrive within bodyTimeout. readBody ends that
// deadline.
func pace(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // of the former request on the connection
	if r.Body != nil && r.Body != http.NoBody {
		_ = control.SetReadDeadline(deadline(bodyTimeout))
	}
}

// bodyRead ends the deadline of pace when the whole body was read. Without that, the
// server would take the end of the deadline for the end of the client. After an error
// the deadline stays, because the server still tries to read the rest of the body.
func bodyRead(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

// writing allows progressTimeout for the next write.
func writing(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(deadline(progressTimeout))
}

// deadline is a time on the clock of the network connections.
func deadline(after time.Duration) time.Time { return engine.MonotonicClock().Now().Time().Add(after) }

// pacedBody is the body of an upload. Each read allows progressTimeout.
type pacedBody struct {
	io.ReadCloser
	w http.ResponseWriter
}

// Read reads the next part.
func (b *pacedBody) Read(p []byte) (int, error) {
	_ = http.NewResponseController(b.w).SetReadDeadline(deadline(progressTimeout))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		bodyRead(b.w)
	}
	return n, err
}

// pacedWriter is the writer of an answer that another member sends. Each write allows
// progressTimeout.
type pacedWriter struct{ http.ResponseWriter }

// Write writes the next part.
func (p pacedWriter) Write(data []byte) (int, error) {
	writing(p.ResponseWriter)
	return p.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController find the connection.
func (p pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// setRetryAfter tells a client that calls too often when it may call again.
func setRetryAfter(w http.ResponseWriter, err error) {
	var rate *limits.RateError
	if errors.As(err, &rate) {
		w.Header().Set("Retry-After", strconv.Itoa(int(rate.After/time.Second)+1))
	}
}
