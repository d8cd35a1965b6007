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
	verifier  *fencing.Verifier // nil if tokens are numbers
}

// New returns a Gate over marks for the resources that resource names.
func New(marks callgate.Marks, resource ResourceFunc, options ...Option) (*Gate, error) {
	if marks == nil || resource == nil {
		return nil, errors.New("create an HTTP gate: marks and a function that names the resource are required")
	}
	g := &Gate{resource: resource, buffer: defaultBuffer}
	for _, option := range options {
		if err := option(g); err != nil {
			return nil, fmt.Errorf("create an HTTP gate: %w", err)
		}
	}
	if g.verifier != nil {
		g.Guard = callgate.New(marks, callgate.WithVerifier(g.verifier))
	} else {
		g.Guard = callgate.New(marks)
	}
	return g, nil
}

// Handler returns a handler that gates next. It answers a request that is not
// admitted with a Problem and does not call next.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.serve(w, r, next); err != nil {
			WriteError(w, err)
		}
	})
}

func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) error {
	carried, err := g.Carry(r.Header.Values(fencing.Header))
	if err != nil {
		return err
	}
	read := IsRead(r) && !g.gateReads
	if read && carried.Missing() {
		next.ServeHTTP(w, r)
		return nil
	}
	resource, err := callgate.Named(g.resource(r))
	if errors.Is(err, callgate.ErrUngated) {
		next.ServeHTTP(w, r)
		return nil
	}
	if err != nil {
		return err
	}
	token, err := g.TokenOf(r.Context(), carried, resource)
	if err != nil {
		return err
	}
	// A client that sends its body slowly must not block the resource.
	if err := BufferBody(r, g.buffer); err != nil {
		return err
	}
	ctx, cancel := g.waitContext(r.Context())
	defer cancel()
	if read {
		// Raise the mark before the handler reads. Later writes need not wait for
		// the reader.
		if err := g.Enter(ctx, resource, token); err != nil {
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	}
	return g.Call(ctx, resource, token, func() error {
		next.ServeHTTP(w, r)
		return nil
	})
}

func (g *Gate) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.wait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, g.wait)
}
