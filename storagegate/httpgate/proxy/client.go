package proxy

import (
	"net/http"
	"time"
)

// slowAnswer is the answer to one client, who has to read it: an answer that is
// too long to be read ahead is written while the flight lasts, and a client that
// does not read would hold up the resource for ever. Each time it keeps a write
// waiting longer than its patience, the connection gives up. The proxy then
// reads on without it.
type slowAnswer struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	timer    *time.Timer
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// answerTo wraps w. stop must be called when the handler returns.
func answerTo(w http.ResponseWriter, patience time.Duration) (answer *slowAnswer, stop func()) {
	a := &slowAnswer{ResponseWriter: w, control: http.NewResponseController(w), patience: patience}
	a.timer = time.AfterFunc(patience, func() { _ = a.control.SetWriteDeadline(longAgo) })
	a.timer.Stop()
	return a, func() { a.timer.Stop() }
}

// Write writes, as long as the client reads.
func (a *slowAnswer) Write(p []byte) (int, error) {
	a.timer.Reset(a.patience)
	defer a.timer.Stop()
	return a.ResponseWriter.Write(p)
}

// FlushError flushes, as long as the client reads.
func (a *slowAnswer) FlushError() error {
	a.timer.Reset(a.patience)
	defer a.timer.Stop()
	return a.control.Flush()
}

// Unwrap gives http.ResponseController the writer that knows the connection.
func (a *slowAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
