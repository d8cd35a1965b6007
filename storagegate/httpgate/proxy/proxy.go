package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// Proxy is the HTTP handler. Its Monitor counts and reports decisions.
//
// Invariants:
//  1. at most one gated request for a resource is in flight;
//  2. a gated request is sent only after its token was admitted and the raised
//     mark and the flight are on disk, and it is sent at most once;
//  3. after a request with an unknown outcome, the proxy sends no other request for
//     that resource until Reopen, even after a restart.
type Proxy struct {
	storagegate.Monitor
	config  Config
	journal *journal
	mutex   callgate.ResourceMutex
	writes  *httputil.ReverseProxy
	reads   *httputil.ReverseProxy

	mu       sync.Mutex
	inFlight map[fencing.Resource]*flight
	closed   map[fencing.Resource]Flight
	stopping bool
}

// Open opens the journal and returns the proxy. The resources of requests that
// were in flight when the journal was last used are closed.
func Open(config Config) (*Proxy, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open a gate proxy: %w", err)
	}
	j, err := openJournal(config.Journal, config.Rule)
	if err != nil {
		return nil, err
	}
	left, err := j.flights()
	if err != nil {
		_ = j.db.Close()
		return nil, err
	}
	p := &Proxy{config: config, journal: j, inFlight: map[fencing.Resource]*flight{}, closed: map[fencing.Resource]Flight{}}
	for _, f := range left {
		if !f.Closed {
			f.Closed, f.Reason = true, "the proxy ended while the request was in flight"
			config.Log.Error("closed a resource: the proxy ended while a request was in flight",
				"resource", f.Resource, "token", f.Token, "method", f.Method, "path", f.Path)
		}
		p.closed[f.Resource] = f
	}
	p.writes = p.forwarder(transport{singleUse()}, errUnsent)
	p.reads = p.forwarder(http.DefaultTransport.(*http.Transport).Clone(), errUnanswered)
	return p, nil
}

// singleUse returns a transport that sends each request on a new connection. On a
// reused connection net/http may send a request twice, and a service that closes
// an idle connection at the wrong moment would leave the outcome unknown.
func singleUse() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	t.Proxy = nil
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// forwarder returns a proxy that sends requests to the service. It reports a
// failure as failure, unless the outcome is unknown.
func (p *Proxy) forwarder(transport http.RoundTripper, failure error) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.config.Upstream)
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, errUnknown) {
				err = failure
			}
			problem(err).Write(w)
		},
	}
}

// ServeHTTP forwards admitted requests and responds to others with a problem.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.serve(w, r); err != nil {
		problem(err).Write(w)
	}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Upgrade") != "" || r.Method == http.MethodConnect {
		return errUpgrade
	}
	carried, err := callgate.Carry(p.config.Verifier, r.Header.Values(fencing.Header))
	if err != nil {
		return err
	}
	read := httpgate.IsRead(r) && !p.config.GateReads
	if read && carried.Missing() {
		p.reads.ServeHTTP(w, r)
		return nil
	}
	resource, err := callgate.Named(p.config.Resource(r))
	if errors.Is(err, callgate.ErrUngated) {
		p.reads.ServeHTTP(w, r)
		return nil
	}
	if err != nil {
		return err
	}
	token, err := carried.Token(resource)
	if err != nil {
		return p.Record(r.Context(), resource, fencing.None, err)
	}
	if read {
		return p.enter(w, r, resource, token)
	}
	return p.write(w, r, resource, token)
}

// enter raises the mark when no request is in flight, and then forwards the read.
func (p *Proxy) enter(w http.ResponseWriter, r *http.Request, resource fencing.Resource, token fencing.Token) error {
	unlock, err := p.lock(r.Context(), resource)
	if err != nil {
		return err
	}
	err = p.Record(r.Context(), resource, token, p.journal.enter(resource, token))
	unlock()
	if err != nil {
		return err
	}
	p.reads.ServeHTTP(w, r)
	return nil
}

func (p *Proxy) write(w http.ResponseWriter, r *http.Request, resource fencing.Resource, token fencing.Token) error {
	if err := p.admissible(resource); err != nil {
		return err
	}
	// A client that sends its body slowly must not block the resource.
	if err := httpgate.BufferBody(r, p.config.Buffer); err != nil {
		return err
	}
	unlock, err := p.lock(r.Context(), resource)
	if err != nil {
		return err
	}
	f, err := p.begin(r, resource, token, unlock)
	if err != nil {
		unlock()
		return err
	}
	defer f.release()
	writer, stop := newTimedWriter(w, p.config.ReadTimeout)
	defer stop()
	p.writes.ServeHTTP(writer, r.WithContext(f.ctx))
	return nil
}

// lock locks the resource and checks that it is open.
func (p *Proxy) lock(ctx context.Context, resource fencing.Resource) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.WaitTimeout)
	defer cancel()
	unlock, err = p.mutex.Lock(ctx, resource)
	if err != nil {
		return nil, p.waitError(resource, err)
	}
	if err := p.admissible(resource); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// admissible returns an error if no request can be sent for the resource now.
func (p *Proxy) admissible(resource fencing.Resource) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return notAdmitted(errStopping)
	}
	if f, ok := p.closed[resource]; ok {
		return &closedError{f}
	}
	return nil
}

// waitError returns the error of a request that waited too long for its resource.
func (p *Proxy) waitError(resource fencing.Resource, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.inFlight[resource]; f != nil {
		waiting := f.record
		waiting.Reason = "no response yet"
		return &closedError{waiting}
	}
	return notAdmitted(err)
}

// begin records the flight in the journal. The flight then owns unlock.
func (p *Proxy) begin(r *http.Request, resource fencing.Resource, token fencing.Token, unlock func()) (*flight, error) {
	f := &flight{proxy: p, unlock: unlock, ended: make(chan struct{}), record: Flight{
		Resource: resource, Token: token, Method: r.Method, Path: r.URL.EscapedPath(), Sent: p.config.Now().UTC().Truncate(1e9)}}
	if err := p.Record(r.Context(), resource, token, p.journal.begin(f.record)); err != nil {
		return nil, err
	}
	// The request must not end when its client leaves: the service may process it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	f.ctx, f.cancel = context.WithValue(ctx, flightKey{}, f), cancel
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight[resource] = f
	return f, nil
}

// ended updates the maps after the journal.
func (p *Proxy) ended(f *flight, closed *Flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inFlight, f.record.Resource)
	if closed != nil {
		p.closed[f.record.Resource] = *closed
	}
}
