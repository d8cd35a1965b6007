package gateproxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/httpapi"
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
	*httpgate.Gate // its marks are in the journal
	config         Config
	journal        *journal
	writes         *httputil.ReverseProxy
	reads          *httputil.ReverseProxy

	mu       sync.Mutex
	inFlight map[fencing.Resource]*flight
	closed   map[fencing.Resource]Flight
	stopping bool
}

// Open opens the journal and returns the proxy. The resources of requests that
// were in flight when the journal was last used are closed.
func Open(config Config) (*Proxy, error) {
	j, err := openJournal(config.Journal, config.Rule)
	if err != nil {
		return nil, err
	}
	left, err := j.flights()
	if err != nil {
		_ = j.db.Close()
		return nil, err
	}
	options := []httpgate.Option{httpgate.Wait(config.WaitTimeout), httpgate.Buffer(config.Buffer)}
	if config.GateReads {
		options = append(options, httpgate.GateReads())
	}
	if config.Verifier != nil {
		options = append(options, httpgate.WithVerifier(config.Verifier))
	}
	p := &Proxy{config: config, journal: j,
		inFlight: map[fencing.Resource]*flight{}, closed: map[fencing.Resource]Flight{}}
	if p.Gate, err = httpgate.New(marks{p}, config.Resource, options...); err != nil {
		_ = j.db.Close()
		return nil, err
	}
	for _, f := range left {
		if !f.Closed {
			f.Closed, f.Reason = true, "the proxy ended while the request was in flight"
			config.Log.Error("closed a resource: the proxy ended while a request was in flight",
				"resource", f.Resource, "token", f.Token, "method", f.Method, "path", f.Path)
		}
		p.closed[f.Resource] = f
	}
	p.writes = p.forwarder(transport{singleUse()}, errUnsent)
	p.reads = p.forwarder(direct(), errUnanswered)
	return p, nil
}

// direct returns a transport that connects to the service without a proxy in between.
func direct() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	return t
}

// singleUse returns a transport that sends each request on a new connection. On a
// reused connection net/http may send a request twice, and a service that closes
// an idle connection at the wrong moment would leave the outcome unknown.
func singleUse() *http.Transport {
	t := direct()
	t.DisableKeepAlives = true
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
	switch upgrade := r.Header.Get("Upgrade"); {
	case r.Method == http.MethodConnect:
		return errUpgrade
	case upgrade == "h2c": // Java's client offers HTTP/2 by default; HTTP/1.1 serves it as well
		r.Header.Del("Upgrade")
	case upgrade != "":
		return errUpgrade
	}
	f := &flight{proxy: p, ended: make(chan struct{}), record: Flight{
		Method: r.Method, Path: r.URL.EscapedPath(), Sent: p.config.Now().UTC().Truncate(1e9)}}
	if p.config.GateReads || !httpgate.IsRead(r) {
		r = r.WithContext(context.WithValue(r.Context(), flightKey{}, f))
	}
	unlock, err := p.Admit(r)
	if err != nil {
		return p.waitError(r, err)
	}
	if f.record.Resource == "" { // a read, or a request that is not gated
		p.reads.ServeHTTP(w, r)
		return nil
	}
	f.launch(r, unlock)
	defer f.release()
	// A client that does not read a response that is too long to be buffered would block the resource for good. It is
	// dropped, and the proxy reads the rest of the response without it.
	p.writes.ServeHTTP(httpapi.PacedWriter{ResponseWriter: w, Limit: p.config.ReadTimeout}, r.WithContext(f.ctx))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the service may have paused before the end
	return nil
}

// marks is the callgate.Marks of a Proxy. The request holds its resource.
type marks struct{ *Proxy }

// Admit raises the mark and records the flight in the context, if there is one, in
// one transaction of the journal. Without a flight the holder is about to read.
func (m marks) Admit(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if err := m.admissible(resource); err != nil {
		return err
	}
	f, ok := ctx.Value(flightKey{}).(*flight)
	if !ok {
		return m.journal.enter(resource, token)
	}
	begun := f.record
	begun.Resource, begun.Token = resource, token
	if err := m.journal.begin(begun); err != nil {
		return err
	}
	f.record = begun
	return nil
}

// Mark returns the newest token admitted for the resource, or None.
func (m marks) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	return m.journal.gate.Mark(ctx, resource)
}

// admissible returns an error if no request can be sent for the resource now.
func (p *Proxy) admissible(resource fencing.Resource) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return errStopping
	}
	if f, ok := p.closed[resource]; ok {
		return &closedError{f}
	}
	return nil
}

// waitError returns the error of a request that was not admitted. If it waited too
// long for its resource, the error names the request in flight.
func (p *Proxy) waitError(r *http.Request, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	resource, _ := p.config.Resource(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.inFlight[resource]; f != nil {
		waiting := f.record
		waiting.Reason = "no response yet"
		return &closedError{waiting}
	}
	return err
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
