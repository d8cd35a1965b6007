package gateproxy

import (
	"net/http"
	"time"
)

// timedWriter writes the response to one client. A response that is too long to
// be buffered is written while the request holds its resource, so a client that
// does not read would block the resource for good. If a write takes longer than
// the timeout, the connection is dropped, and the proxy reads the rest of the
// response without the client.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	timer   *time.Timer
}

// expired is a deadline in the past.
var expired = time.Unix(1, 0)

// newTimedWriter wraps w. Call stop when the handler returns.
func newTimedWriter(w http.ResponseWriter, timeout time.Duration) (writer *timedWriter, stop func()) {
	t := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}
	t.timer = time.AfterFunc(timeout, func() { _ = t.control.SetWriteDeadline(expired) })
	t.timer.Stop()
	return t, func() { t.timer.Stop() }
}

// Write writes p and drops the client if that takes longer than the timeout.
func (t *timedWriter) Write(p []byte) (int, error) {
	t.timer.Reset(t.timeout)
	defer t.timer.Stop()
	return t.ResponseWriter.Write(p)
}

// FlushError flushes and drops the client if that takes longer than the timeout.
func (t *timedWriter) FlushError() error {
	t.timer.Reset(t.timeout)
	defer t.timer.Stop()
	return t.control.Flush()
}

// Unwrap returns the wrapped writer for http.ResponseController.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
