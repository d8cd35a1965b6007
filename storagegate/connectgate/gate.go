package connectgate

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// ResourceFunc returns the name of the resource that a call writes to. spec
// describes the procedure, and message is the request or the next message of a
// stream. Two calls that can change the same data must return the same name.
// callgate.ErrUngated lets a call that only reads pass without a check; any other
// error refuses the call with invalid_argument.
type ResourceFunc func(ctx context.Context, spec connect.Spec, message any) (fencing.Resource, error)

// Gate is the interceptor of a server. Services that write the same data must
// share one Gate. Its Guard counts and reports decisions and returns marks.
type Gate struct {
	*callgate.Guard
	resource ResourceFunc
}

var _ connect.Interceptor = (*Gate)(nil)

// New returns a Gate over marks for the resources that resource names. With the
// option callgate.WithVerifier it accepts signed tokens only.
func New(marks callgate.Marks, resource ResourceFunc, options ...callgate.Option) (*Gate, error) {
	if marks == nil || resource == nil {
		return nil, errors.New("create a Connect gate: marks and a function that names the resource are required")
	}
	return &Gate{Guard: callgate.New(marks, options...), resource: resource}, nil
}

// WrapUnary gates unary calls. The deadline of a call limits its wait for the
// resource. Calls of a client pass.
func (g *Gate) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		end, err := g.BeginNamed(ctx, request.Header().Values(fencing.Header),
			func() (fencing.Resource, error) { return g.resource(ctx, request.Spec(), request.Any()) })
		if err != nil {
			return nil, Error(err)
		}
		defer end()
		return next(ctx, request)
	}
}

// WrapStreamingClient returns next: calls of a client pass.
func (g *Gate) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler gates streaming calls.
func (g *Gate) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		messages, err := g.NewStream(conn.RequestHeader().Values(fencing.Header), Error)
		if err != nil {
			return err
		}
		return messages.Run(func() error { return next(ctx, &handlerConn{conn, ctx, g, messages}) })
	}
}

// handlerConn gates each message that the handler receives.
type handlerConn struct {
	connect.StreamingHandlerConn
	ctx      context.Context // of the call; Receive has no context parameter
	gate     *Gate
	messages *callgate.Stream
}

// Receive returns the next message after it was admitted.
func (c *handlerConn) Receive(message any) error {
	return c.messages.Receive(c.ctx,
		func() error { return c.StreamingHandlerConn.Receive(message) },
		func() (fencing.Resource, error) { return c.gate.resource(c.ctx, c.Spec(), message) })
}
