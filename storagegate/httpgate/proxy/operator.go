package proxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
)

// Flights lists the requests whose end is not known, those under way and those
// that have closed their resource.
func (p *Proxy) Flights() []Flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Flight, 0, len(p.inFlight)+len(p.closed))
	for _, f := range p.inFlight {
		all = append(all, f.note)
	}
	for _, f := range p.closed {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Flight) int { return cmp.Compare(a.Resource, b.Resource) })
	return all
}

// Mark is the newest token admitted for the resource, None if there is none.
func (p *Proxy) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	return p.journal.gate.Mark(ctx, resource)
}

// Reopen is an operator's word that the request which closed the resource is
// over: that it can no longer write. The mark stays where it is. A request that
// is still under way is given up only with abandon.
func (p *Proxy) Reopen(ctx context.Context, resource fencing.Resource, abandon bool) error {
	p.mu.Lock()
	f := p.inFlight[resource]
	p.mu.Unlock()
	if f != nil {
		if !abandon {
			return fmt.Errorf("reopen %q: %w: %s %s may yet be answered; end it at the service, or abandon it", string(resource), ErrInFlight, f.note.Method, f.note.Path)
		}
		f.cancel()
		f.close("abandoned by an operator") // its client may never read the rest of the answer
		select {
		case <-f.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// The turn keeps a request from slipping in between disk and memory.
	end, err := p.turns.Take(ctx, resource)
	if err != nil {
		return fmt.Errorf("reopen %q: %w", string(resource), err)
	}
	defer end()
	p.mu.Lock()
	closed, ok := p.closed[resource]
	p.mu.Unlock()
	if !ok {
		return fmt.Errorf("reopen %q: %w", string(resource), ErrNoFlight)
	}
	if err := p.journal.forget(resource); err != nil {
		return fmt.Errorf("reopen %q: %w", string(resource), err)
	}
	p.mu.Lock()
	delete(p.closed, resource)
	p.mu.Unlock()
	p.config.Log.Warn("an operator reopened a resource", "resource", resource, "token", closed.Token,
		"method", closed.Method, "path", closed.Path, "reason", closed.Reason)
	return nil
}

// Failed is closed when the journal cannot be written any more. Nothing is
// admitted then; the program should end.
func (p *Proxy) Failed() <-chan struct{} { return p.journal.failed }

// Close admits nothing more, waits for what is in flight until ctx ends, and
// closes the journal. What is still in flight then has its resource closed when
// the journal is next opened. Stop the server first.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	var waiting []*flight
	for _, f := range p.inFlight {
		waiting = append(waiting, f)
	}
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
