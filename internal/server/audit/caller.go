package audit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// Caller is where a call comes from. A context carries it from the moment the call
// arrives, so that a refusal is recorded with the same fields as an event.
type Caller struct {
	// Address is the address of the caller's connection.
	Address string
	// Via is the address of the member that forwarded the call, or "". Address is
	// then what that member reported.
	Via string

	user atomic.Pointer[string]
}

// callerKey is the key of the Caller in a context.
type callerKey struct{}

// WithCaller returns a context that carries a caller.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a context, or nil if there is none.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Identify records the name of the user that the call was authenticated as.
func Identify(ctx context.Context, user string) {
	if c := CallerOf(ctx); c != nil {
		c.user.Store(&user)
	}
}

// fromGRPC returns the caller of a gRPC call.
func fromGRPC(ctx context.Context) *Caller {
	c := &Caller{}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.Address = p.Addr.String()
	}
	return c
}

// fill copies the known fields of the caller to a record.
func (c *Caller) fill(r *Record) {
	if c == nil {
		return
	}
	r.Address, r.Via = c.Address, c.Via
	if user := c.user.Load(); user != nil {
		r.User = *user
	}
}
