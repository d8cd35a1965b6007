package httpgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// Gate is the middleware. One Gate can wrap any number of handlers. Handlers that
// write the same data must share one Gate. Its Guard counts and reports decisions
// and returns marks.
type Gate struct {
	*callgate.Guard
	resource  ResourceFunc
	wait      time.Duration
	buffer    int64
	gateReads bool
}

// New returns a Gate over marks for the resources that resource names.
func New(marks callgate.Marks, resource ResourceFunc, options ...Option) (*Gate, error) {
	if marks == nil || resource == nil {
		return nil, errors.New("create an HTTP gate: marks and a function that names the resource are required")
	}
	g := &Gate{Guard: callgate.New(marks), resource: resource, buffer: defaultBuffer}
	for _, option := range options {
		if err := option(g); err != nil {
			return nil, fmt.Errorf("create an HTTP gate: %w", err)
		}
	}
	return g, nil
}

// Handler returns a handler that gates next. It answers a request that is not
// admitted with a Problem and does not call next.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, err := g.Admit(r)
		if err != nil {
			WriteError(w, err)
			return
		}
		defer end()
		next.ServeHTTP(w, r)
	})
}

// Admit is the part of Handler before next is called. A write holds its resource
// until end is called; call end once.
func (g *Gate) Admit(r *http.Request) (end func(), err error) {
	nothing := func() {}
	carried, err := g.Carry(r.Header.Values(fencing.Header))
	if err != nil {
		return nil, err
	}
	read := IsRead(r) && !g.gateReads
	if read && carried.Missing() {
		return nothing, nil
	}
	resource, err := callgate.Named(g.resource(r))
	if errors.Is(err, callgate.ErrUngated) {
		return nothing, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := g.TokenOf(r.Context(), carried, resource); err != nil {
		return nil, err
	}
	// A client that sends its body slowly must not block the resource.
	if err := BufferBody(r, g.buffer); err != nil {
		return nil, err
	}
	ctx := r.Context()
	if g.wait > 0 {
		limited, cancel := context.WithTimeout(ctx, g.wait)
		defer cancel()
		ctx = limited
	}
	end, err = g.BeginCarried(ctx, resource, carried)
	if err == nil && read {
		// The mark is raised before the handler reads. Later writes need not wait for
		// the reader.
		end()
		return nothing, nil
	}
	return end, err
}
