package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Flight is a gated request that was sent to the service and whose end is not
// known. While there is one, its resource admits nothing else.
type Flight struct {
	Resource fencing.Resource `json:"resource"`
	Token    fencing.Token    `json:"token"`
	Method   string           `json:"method"`
	Path     string           `json:"path"`
	Sent     time.Time        `json:"sent"`
	// Closed is false while the proxy still waits for the answer.
	Closed bool `json:"closed"`
	// Reason says why the outcome is unknown.
	Reason string `json:"reason,omitempty"`
}

// flight is a Flight under way. It ends once: over, when the service cannot be
// at work on it any more, or closed.
type flight struct {
	proxy    *Proxy
	note     Flight
	endTurn  func()
	launched bool            // used by the goroutine of the handler only
	ctx      context.Context // of the request to the service
	cancel   context.CancelFunc
	sent     atomic.Bool
	ending   sync.Once
	ended    chan struct{}
}

// answer is what a RoundTrip yields.
type answer struct {
	response *http.Response
	err      error
}

type flightKey struct{}

// transport sends the request of the flight in its context.
type transport struct{ inner http.RoundTripper }

// RoundTrip sends the request, once, and returns the answer if it comes in
// time. The request goes on without the client.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	f, ok := request.Context().Value(flightKey{}).(*flight)
	if !ok {
		return nil, errors.New("a gated request has no flight")
	}
	f.launched = true
	answers, late := make(chan answer), make(chan struct{})
	go func() {
		a := f.send(t.inner, request)
		select {
		case answers <- a:
		case <-late:
			if a.response != nil {
				_ = a.response.Body.Close() // reads the rest, which ends the flight
			}
		}
	}()
	timer := time.NewTimer(f.proxy.config.AnswerTimeout)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.response, a.err
	case <-timer.C:
		close(late)
		f.proxy.config.Log.Warn("the service has not answered in time; the resource stays closed until it does",
			"resource", f.note.Resource, "token", f.note.Token, "method", f.note.Method, "path", f.note.Path)
		return nil, fmt.Errorf("%w: no answer within %v", errUnknown, f.proxy.config.AnswerTimeout)
	}
}

// send sends the request and reads the answer, or as much of it as fits.
func (f *flight) send(inner http.RoundTripper, request *http.Request) answer {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.sent.Store(true) }}
	response, err := inner.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	switch {
	case err != nil && !f.sent.Load():
		f.over()
		return answer{err: fmt.Errorf("%w: %w", errUnsent, err)}
	case err != nil:
		return f.lost(err.Error())
	case slices.Contains(f.proxy.config.UnknownStatus, response.StatusCode):
		_ = response.Body.Close()
		return f.lost("the service answered " + response.Status)
	}
	// The service is done when the whole answer is here, not when it begins.
	var ahead bytes.Buffer
	size := f.proxy.config.Buffer
	n, err := io.Copy(&ahead, io.LimitReader(response.Body, size+1))
	switch {
	case err != nil:
		_ = response.Body.Close()
		return f.lost("the answer broke off: " + err.Error())
	case n <= size:
		_ = response.Body.Close()
		f.over()
		response.Body = io.NopCloser(&ahead)
	default:
		response.Body = &tail{Reader: io.MultiReader(&ahead, response.Body), body: response.Body, flight: f}
	}
	return answer{response: response}
}

func (f *flight) lost(reason string) answer {
	f.close(reason)
	return answer{err: fmt.Errorf("%w: %s", errUnknown, reason)}
}

// over ends the flight: the service has answered, or never got the request.
func (f *flight) over() {
	f.end(func() error { return f.proxy.journal.forget(f.note.Resource) }, nil)
}

// close ends the flight with an unknown outcome.
func (f *flight) close(reason string) {
	closed := f.note
	closed.Closed, closed.Reason = true, reason
	f.proxy.config.Log.Error("closed a resource: the outcome of a request is unknown",
		"resource", closed.Resource, "token", closed.Token, "method", closed.Method, "path", closed.Path, "reason", reason)
	f.end(func() error { return f.proxy.journal.note(closed) }, &closed)
}

// end writes down how the flight ended, and then ends the turn: the next one
// must find the resource open or closed. If it cannot be written down, the note
// that is on disk keeps the resource closed.
func (f *flight) end(write func() error, closed *Flight) {
	f.ending.Do(func() {
		if err := write(); err != nil {
			failed := f.note
			failed.Closed, failed.Reason = true, err.Error()
			closed = &failed
			f.proxy.config.Log.Error("the end of a request could not be written down", "resource", f.note.Resource, "error", err)
		}
		f.proxy.landed(f, closed)
		f.cancel()
		close(f.ended)
		f.endTurn()
	})
}

// release is called when the handler has returned. A request that was never
// handed to the transport cannot have been sent.
func (f *flight) release() {
	if !f.launched {
		f.over()
	}
}

// tail is the body of an answer that is too long to be read ahead. The flight
// ends with it.
type tail struct {
	io.Reader
	body   io.Closer
	flight *flight
}

// Read ends the flight at the end of the body.
func (t *tail) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		t.flight.over()
	case err != nil:
		t.flight.close("the answer broke off: " + err.Error())
	}
	return n, err
}

// Close goes on reading for a client that has left.
func (t *tail) Close() error {
	go func() {
		_, _ = io.Copy(io.Discard, t)
		_ = t.body.Close()
	}()
	return nil
}
