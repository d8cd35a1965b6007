package grpcgate

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// ResourceFunc names what a call writes to: method is the full name, such as
// "/shop.v1.Orders/Put", and message the request, or the next message of a
// stream. Two calls that can change the same data must yield the same name.
// callgate.ErrUngated lets the call pass without a check, such as one that only
// reads; any other error refuses it with INVALID_ARGUMENT.
type ResourceFunc func(ctx context.Context, method string, message any) (fencing.Resource, error)

// Gate makes the interceptors. Services that reach the same data must share
// one. Its Guard counts, reports and shows marks.
type Gate struct {
	*callgate.Guard
	resource ResourceFunc
}

// New returns a Gate over marks for the resources that resource names.
func New(marks callgate.Marks, resource ResourceFunc) (*Gate, error) {
	if marks == nil || resource == nil {
		return nil, errors.New("make a gRPC gate: it needs marks and a function that names the resource")
	}
	return &Gate{Guard: callgate.New(marks), resource: resource}, nil
}

// Unary returns the interceptor of calls with one request and one answer. How
// long a call waits for its turn is bounded by its deadline.
func (g *Gate) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resource, err := g.name(ctx, info.FullMethod, request)
		if errors.Is(err, callgate.ErrUngated) {
			return handler(ctx, request)
		}
		if err != nil {
			return nil, Error(err)
		}
		token, err := Token(ctx)
		if err != nil {
			return nil, Error(err)
		}
		end, err := g.Take(ctx, resource, token)
		if err != nil {
			return nil, Error(err)
		}
		defer end()
		return handler(ctx, request)
	}
}

// Stream returns the interceptor of calls that stream in either direction.
func (g *Gate) Stream() grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		token, err := Token(stream.Context())
		if err != nil {
			return Error(err)
		}
		gated := &serverStream{ServerStream: stream, gate: g, method: info.FullMethod, turns: g.NewStream(token)}
		defer func() {
			if refused := gated.turns.Close(); refused != nil {
				err = Error(refused)
			}
		}()
		return handler(service, gated)
	}
}

func (g *Gate) name(ctx context.Context, method string, message any) (fencing.Resource, error) {
	resource, err := g.resource(ctx, method, message)
	if err != nil && !errors.Is(err, callgate.ErrUngated) && !errors.Is(err, fencing.ErrInvalidResource) {
		err = fmt.Errorf("name the resource: %w: %w", fencing.ErrInvalidResource, err)
	}
	return resource, err
}

// serverStream takes the turn for each message that the handler receives.
type serverStream struct {
	grpc.ServerStream
	gate   *Gate
	method string
	turns  *callgate.Stream
}

// RecvMsg returns the next message once its turn has come.
func (s *serverStream) RecvMsg(message any) error {
	var transport error
	err := s.turns.Receive(s.Context(),
		func() error { transport = s.ServerStream.RecvMsg(message); return transport },
		func() (fencing.Resource, error) { return s.gate.name(s.Context(), s.method, message) })
	if err == nil || err == transport {
		return err // io.EOF must stay what it is
	}
	return Error(err)
}
