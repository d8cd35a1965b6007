package gateproxy

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

// Flight is a gated request in flight: it was sent to the service, and its
// outcome is not known. Until it ends, its resource admits no other request.
type Flight struct {
	Resource fencing.Resource `json:"resource"`
	Token    fencing.Token    `json:"token"`
	Method   string           `json:"method"`
	Path     string           `json:"path"`
	Sent     time.Time        `json:"sent"`
	// Closed is false while the proxy still waits for the response.
	Closed bool `json:"closed"`
	// Reason says why the outcome is unknown.
	Reason string `json:"reason,omitempty"`
}

// flight is a Flight in this process. It ends once: with done, if the service
// cannot be processing it any more, or with close.
type flight struct {
	proxy    *Proxy
	record   Flight
	unlock   func()          // releases the resource
	launched bool            // used by the goroutine of the handler only
	ctx      context.Context // of the request to the service
	cancel   context.CancelFunc
	sent     atomic.Bool
	ending   sync.Once
	ended    chan struct{}
}

// result is the result of a RoundTrip.
type result struct {
	response *http.Response
	err      error
}

type flightKey struct{}

// launch begins the flight of a request that was admitted. The flight then owns
// unlock.
func (f *flight) launch(r *http.Request, unlock func()) {
	f.unlock = unlock
	// The request must not end when its client leaves: the service may process it.
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(r.Context()))
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	f.proxy.inFlight[f.record.Resource] = f
}

// transport sends the request of the flight in its context.
type transport struct{ inner http.RoundTripper }

// RoundTrip sends the request once and returns the response if it arrives in
// time. After the timeout the request continues without the client.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	f, ok := request.Context().Value(flightKey{}).(*flight)
	if !ok {
		return nil, errors.New("the context of a gated request has no flight")
	}
	f.launched = true
	results := make(chan result, 1)
	go func() { results <- f.send(t.inner, request) }()
	timer := time.NewTimer(f.proxy.config.AnswerTimeout)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.response, r.err
	case <-timer.C:
		go func() {
			if r := <-results; r.response != nil {
				_ = r.response.Body.Close() // reads the rest and so ends the flight
			}
		}()
		f.proxy.config.Log.Warn("the service did not respond in time; the resource stays closed until it does",
			"resource", f.record.Resource, "token", f.record.Token, "method", f.record.Method, "path", f.record.Path)
		return nil, fmt.Errorf("%w: no response within %v", errUnknown, f.proxy.config.AnswerTimeout)
	}
}

// send sends the request and reads the response up to the size of the buffer.
func (f *flight) send(inner http.RoundTripper, request *http.Request) result {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.sent.Store(true) }}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	if request.ContentLength > 0 {
		// After the last byte net/http reads once more, to find the end. If the client has
		// left by then, that read fails, and net/http drops the connection.
		request.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(request.Body, request.ContentLength), request.Body}
	}
	response, err := inner.RoundTrip(request)
	switch {
	case err != nil && !f.sent.Load():
		f.done()
		return result{err: fmt.Errorf("%w: %w", errUnsent, err)}
	case err != nil:
		return f.lost(err.Error())
	case slices.Contains(f.proxy.config.UnknownStatus, response.StatusCode):
		_ = response.Body.Close()
		return f.lost("the service responded " + response.Status)
	}
	// The service is done when the response is complete, not when it starts.
	var buffered bytes.Buffer
	size := f.proxy.config.Buffer
	n, err := io.Copy(&buffered, io.LimitReader(response.Body, size+1))
	switch {
	case err != nil:
		_ = response.Body.Close()
		return f.lost("the response is incomplete: " + err.Error())
	case n <= size:
		_ = response.Body.Close()
		f.done()
		response.Body = io.NopCloser(&buffered)
	default:
		response.Body = &longBody{Reader: io.MultiReader(&buffered, response.Body), body: response.Body, flight: f}
	}
	return result{response: response}
}

func (f *flight) lost(reason string) result {
	f.close(reason)
	return result{err: fmt.Errorf("%w: %s", errUnknown, reason)}
}

// done ends the flight: the service has responded, or never got the request.
func (f *flight) done() {
	f.end(func() error { return f.proxy.journal.remove(f.record.Resource) }, nil)
}

// close ends the flight with an unknown outcome.
func (f *flight) close(reason string) {
	closed := f.record
	closed.Closed, closed.Reason = true, reason
	f.proxy.config.Log.Error("closed a resource: the outcome of a request is unknown",
		"resource", closed.Resource, "token", closed.Token, "method", closed.Method, "path", closed.Path, "reason", reason)
	f.end(func() error { return f.proxy.journal.put(closed) }, &closed)
}

// end records in the journal how the flight ended, and then releases the
// resource. If the journal cannot be written, the record on disk keeps the
// resource closed.
func (f *flight) end(write func() error, closed *Flight) {
	f.ending.Do(func() {
		if err := write(); err != nil {
			failed := f.record
			failed.Closed, failed.Reason = true, err.Error()
			closed = &failed
			f.proxy.config.Log.Error("the end of a request could not be recorded in the journal",
				"resource", f.record.Resource, "error", err)
		}
		f.proxy.ended(f, closed)
		f.cancel()
		close(f.ended)
		f.unlock()
	})
}

// release is called when the handler returns. A request that was never passed to
// the transport was not sent.
func (f *flight) release() {
	if !f.launched {
		f.done()
	}
}

// longBody is the body of a response that does not fit the buffer. The flight
// ends with it.
type longBody struct {
	io.Reader
	body   io.Closer
	flight *flight
}

// Read ends the flight at the end of the body.
func (b *longBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.flight.done()
	case err != nil:
		b.flight.close("the response is incomplete: " + err.Error())
	}
	return n, err
}

// Close reads the rest of the body in the background if the client has left.
func (b *longBody) Close() error {
	go func() {
		_, _ = io.Copy(io.Discard, b)
		_ = b.body.Close()
	}()
	return nil
}
