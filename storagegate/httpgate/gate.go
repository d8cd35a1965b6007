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

// Gate is the middleware. One Gate may wrap any number of handlers; those that
// reach the same data must share it. Its Guard counts, reports and shows marks.
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
		return nil, errors.New("make an HTTP gate: it needs marks and a function that names the resource")
	}
	g := &Gate{Guard: callgate.New(marks), resource: resource, buffer: defaultBuffer}
	for _, option := range options {
		if err := option(g); err != nil {
			return nil, fmt.Errorf("make an HTTP gate: %w", err)
		}
	}
	return g, nil
}

// Handler gates next. A request that is not admitted is answered with a
// Problem, and next does not see it.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.serve(w, r, next); err != nil {
			WriteError(w, err)
		}
	})
}

func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) error {
	token, err := Token(r)
	if err != nil {
		return err
	}
	read := IsRead(r) && !g.gateReads
	if read && token == fencing.None {
		next.ServeHTTP(w, r)
		return nil
	}
	resource, err := g.resource(r)
	if errors.Is(err, callgate.ErrUngated) {
		next.ServeHTTP(w, r)
		return nil
	}
	if err != nil {
		return badResource(err)
	}
	// What the client sends slowly must not hold up the resource.
	if err := BufferBody(r, g.buffer); err != nil {
		return notAdmitted(err)
	}
	ctx, cancel := g.waitContext(r.Context())
	defer cancel()
	if read {
		// The mark is raised before the handler reads; later writes of others
		// need not wait for a reader.
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
