package gateproxy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/leased-project/leased/fencing"
)

// Flights returns the requests with an unknown outcome: those in flight, and
// those that have closed their resource.
func (p *Proxy) Flights() []Flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Flight, 0, len(p.inFlight)+len(p.closed))
	for _, f := range p.inFlight {
		all = append(all, f.record)
	}
	for _, f := range p.closed {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Flight) int { return cmp.Compare(a.Resource, b.Resource) })
	return all
}

// Reset implements storagegate.Resetter. It neither opens nor closes the resource.
func (p *Proxy) Reset(_ context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if err := p.journal.reset(resource, expected, to); err != nil {
		return err
	}
	p.config.Log.Warn("an operator reset a mark", "resource", resource, "from", expected, "to", to)
	return nil
}

// Reopen opens a closed resource. The caller must make sure that the request
// that closed it can no longer write. The mark does not change. With abandon,
// Reopen also gives up a request that is still in flight.
func (p *Proxy) Reopen(ctx context.Context, resource fencing.Resource, abandon bool) error {
	p.mu.Lock()
	f := p.inFlight[resource]
	p.mu.Unlock()
	if f != nil {
		if !abandon {
			return fmt.Errorf("reopen %q: %w: %s %s may still be answered; end it in the service, or abandon it",
				string(resource), ErrInFlight, f.record.Method, f.record.Path)
		}
		f.cancel()
		f.close("abandoned by an operator") // the client may never read the rest of the response
		select {
		case <-f.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.mu.Lock() // keeps other requests out until both journal and memory are updated
	defer p.mu.Unlock()
	closed, ok := p.closed[resource]
	if !ok {
		return fmt.Errorf("reopen %q: %w", string(resource), ErrNoFlight)
	}
	if err := p.journal.remove(resource); err != nil {
		return fmt.Errorf("reopen %q: %w", string(resource), err)
	}
	delete(p.closed, resource)
	p.config.Log.Warn("an operator reopened a resource", "resource", resource, "token", closed.Token,
		"method", closed.Method, "path", closed.Path, "reason", closed.Reason)
	return nil
}

// Failed returns a channel that is closed when the journal cannot be written. The
// proxy then admits no more requests, and the program should exit.
func (p *Proxy) Failed() <-chan struct{} { return p.journal.failed.Done() }

// Close stops admitting requests, waits for requests in flight until ctx ends,
// and closes the journal. The resource of a request that is still in flight is
// closed when the journal is opened again. Stop the HTTP server first.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	waiting := slices.Collect(maps.Values(p.inFlight))
	p.mu.Unlock()
	for _, f := range waiting {
		select {
		case <-f.ended:
		case <-ctx.Done():
		}
	}
	if err := p.journal.db.Close(); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	return nil
}
