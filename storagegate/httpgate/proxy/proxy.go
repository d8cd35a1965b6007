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

// Proxy is the handler. Its Monitor counts and reports what it decided.
//
// Invariants:
//  1. of the gated requests for one resource at most one is under way;
//  2. a gated request is sent only after its token was admitted and the raised
//     mark and the flight are on disk, and it is sent at most once;
//  3. after a request whose end is unknown no other is sent for its resource,
//     also after a restart, until Reopen.
type Proxy struct {
	storagegate.Monitor
	config  Config
	journal *journal
	turns   callgate.Turns
	writes  *httputil.ReverseProxy
	reads   *httputil.ReverseProxy

	mu       sync.Mutex
	inFlight map[fencing.Resource]*flight
	closed   map[fencing.Resource]Flight
	stopping bool
}

// Open opens the journal and returns the proxy. Requests that were in flight
// when the journal was last in use have closed their resources.
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

// singleUse sends each request on a connection of its own. On one that was used
// before, net/http may send a request twice, and a service that closes an idle
// connection at the wrong moment would leave the outcome unknown.
func singleUse() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	t.Proxy = nil
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// forwarder sends requests to the service. A failure is told as what, unless it
// is known to be worse.
func (p *Proxy) forwarder(transport http.RoundTripper, what error) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.config.Upstream)
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, errUnknown) {
				err = what
			}
			problem(err).Write(w)
		},
	}
}

// ServeHTTP forwards what is admitted, and answers the rest with a problem.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.serve(w, r); err != nil {
		problem(err).Write(w)
	}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Upgrade") != "" || r.Method == http.MethodConnect {
		return errUpgrade
	}
	token, err := httpgate.Token(r)
	if err != nil {
		return err
	}
	read := httpgate.IsRead(r) && !p.config.GateReads
	if read && token == fencing.None {
		p.reads.ServeHTTP(w, r)
		return nil
	}
	resource, err := p.config.Resource(r)
	if errors.Is(err, callgate.ErrUngated) {
		p.reads.ServeHTTP(w, r)
		return nil
	}
	if err == nil {
		err = resource.Validate()
	}
	if err != nil && !errors.Is(err, fencing.ErrInvalidResource) {
		err = fmt.Errorf("name the resource: %w: %w", fencing.ErrInvalidResource, err)
	}
	if err != nil {
		return err
	}
	if read {
		return p.enter(w, r, resource, token)
	}
	return p.write(w, r, resource, token)
}

// enter raises the mark when nothing is in flight, and then forwards the read.
func (p *Proxy) enter(w http.ResponseWriter, r *http.Request, resource fencing.Resource, token fencing.Token) error {
	end, err := p.take(r.Context(), resource)
	if err != nil {
		return err
	}
	err = p.Record(resource, token, p.journal.enter(resource, token))
	end()
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
	// What the client sends slowly must not hold up the resource.
	if err := httpgate.BufferBody(r, p.config.Buffer); err != nil {
		return notAdmitted(err)
	}
	end, err := p.take(r.Context(), resource)
	if err != nil {
		return err
	}
	f, err := p.begin(r, resource, token, end)
	if err != nil {
		end()
		return err
	}
	defer f.release()
	answer, stop := answerTo(w, p.config.ReadTimeout)
	defer stop()
	p.writes.ServeHTTP(answer, r.WithContext(f.ctx))
	return nil
}

// take waits for the turn and looks whether the resource is open.
func (p *Proxy) take(ctx context.Context, resource fencing.Resource) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.WaitTimeout)
	defer cancel()
	end, err = p.turns.Take(ctx, resource)
	if err != nil {
		return nil, p.whyNot(resource, err)
	}
	if err := p.admissible(resource); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// admissible returns why nothing can be sent for the resource now, if so.
func (p *Proxy) admissible(resource fencing.Resource) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return notAdmitted(errStopping)
	}
	if f, ok := p.closed[resource]; ok {
		return &ClosedError{f}
	}
	return nil
}

// whyNot tells a request that waited in vain what it waited for.
func (p *Proxy) whyNot(resource fencing.Resource, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.inFlight[resource]; f != nil {
		note := f.note
		note.Reason = "it has not been answered yet"
		return &ClosedError{note}
	}
	return notAdmitted(err)
}

// begin writes the flight down. From here on the turn belongs to it.
func (p *Proxy) begin(r *http.Request, resource fencing.Resource, token fencing.Token, end func()) (*flight, error) {
	f := &flight{proxy: p, endTurn: end, ended: make(chan struct{}), note: Flight{
		Resource: resource, Token: token, Method: r.Method, Path: r.URL.EscapedPath(), Sent: p.config.Now().UTC().Truncate(1e9)}}
	if err := p.Record(resource, token, p.journal.begin(f.note)); err != nil {
		return nil, err
	}
	// The request must not end when its client leaves: it may be at work.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	f.ctx, f.cancel = context.WithValue(ctx, flightKey{}, f), cancel
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight[resource] = f
	return f, nil
}

// landed notes in memory what is on disk already.
func (p *Proxy) landed(f *flight, closed *Flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inFlight, f.note.Resource)
	if closed != nil {
		p.closed[f.note.Resource] = *closed
	}
}
