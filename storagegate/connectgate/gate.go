package connectgate

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// ResourceFunc names what a call writes to: spec says which procedure it is,
// and message is the request, or the next message of a stream. Two calls that
// can change the same data must yield the same name. callgate.ErrUngated lets
// the call pass without a check, such as one that only reads; any other error
// refuses it with invalid_argument.
type ResourceFunc func(ctx context.Context, spec connect.Spec, message any) (fencing.Resource, error)

// Gate is the interceptor of a server. Services that reach the same data must
// share one. Its Guard counts, reports and shows marks.
type Gate struct {
	*callgate.Guard
	resource ResourceFunc
}

var _ connect.Interceptor = (*Gate)(nil)

// New returns a Gate over marks for the resources that resource names.
func New(marks callgate.Marks, resource ResourceFunc) (*Gate, error) {
	if marks == nil || resource == nil {
		return nil, errors.New("make a Connect gate: it needs marks and a function that names the resource")
	}
	return &Gate{Guard: callgate.New(marks), resource: resource}, nil
}

// WrapUnary gates calls with one request and one answer. How long a call waits
// for its turn is bounded by its deadline. Calls of a client pass.
func (g *Gate) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		resource, err := g.name(ctx, request.Spec(), request.Any())
		if errors.Is(err, callgate.ErrUngated) {
			return next(ctx, request)
		}
		if err != nil {
			return nil, Error(err)
		}
		token, err := Token(request.Header())
		if err != nil {
			return nil, Error(err)
		}
		end, err := g.Take(ctx, resource, token)
		if err != nil {
			return nil, Error(err)
		}
		defer end()
		return next(ctx, request)
	}
}

// WrapStreamingClient lets the calls of a client pass.
func (g *Gate) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler gates calls that stream in either direction.
func (g *Gate) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		token, err := Token(conn.RequestHeader())
		if err != nil {
			return Error(err)
		}
		gated := &handlerConn{StreamingHandlerConn: conn, ctx: ctx, gate: g, turns: g.NewStream(token)}
		defer func() {
			if refused := gated.turns.Close(); refused != nil {
				err = Error(refused)
			}
		}()
		return next(ctx, gated)
	}
}

func (g *Gate) name(ctx context.Context, spec connect.Spec, message any) (fencing.Resource, error) {
	resource, err := g.resource(ctx, spec, message)
	if err != nil && !errors.Is(err, callgate.ErrUngated) && !errors.Is(err, fencing.ErrInvalidResource) {
		err = fmt.Errorf("name the resource: %w: %w", fencing.ErrInvalidResource, err)
	}
	return resource, err
}

// handlerConn takes the turn for each message that the handler receives.
type handlerConn struct {
	connect.StreamingHandlerConn
	ctx   context.Context // of the call: Receive is not given one
	gate  *Gate
	turns *callgate.Stream
}

// Receive returns the next message once its turn has come.
func (c *handlerConn) Receive(message any) error {
	var transport error
	err := c.turns.Receive(c.ctx,
		func() error { transport = c.StreamingHandlerConn.Receive(message); return transport },
		func() (fencing.Resource, error) { return c.gate.name(c.ctx, c.Spec(), message) })
	if err == nil || err == transport {
		return err // what wraps io.EOF must stay what it is
	}
	return Error(err)
}
