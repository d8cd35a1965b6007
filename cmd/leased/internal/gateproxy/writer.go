package gateproxy

import (
	"net/http"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// timedWriter writes the response to one client. A response that is too long to
// be buffered is written while the request holds its resource, so a client that
// does not read would block the resource for good. If a write takes longer than
// the timeout, the connection is dropped, and the proxy reads the rest of the
// response without the client.
type timedWriter struct {
	http.ResponseWriter
	timeout time.Duration
}

// Write writes p and drops the client if that takes longer than the timeout.
func (t timedWriter) Write(p []byte) (int, error) {
	defer t.limit()()
	return t.ResponseWriter.Write(p)
}

// FlushError flushes and drops the client if that takes longer than the timeout.
func (t timedWriter) FlushError() error {
	defer t.limit()()
	return http.NewResponseController(t.ResponseWriter).Flush()
}

// limit begins a write. The upstream may pause for longer than the timeout between two
// writes, so the returned function removes the deadline.
func (t timedWriter) limit() func() {
	control := http.NewResponseController(t.ResponseWriter)
	_ = control.SetWriteDeadline(engine.MonotonicClock().Now().Time().Add(t.timeout))
	return func() { _ = control.SetWriteDeadline(time.Time{}) }
}

// Unwrap returns the wrapped writer for http.ResponseController.
func (t timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
