package grpcgate

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// ResourceFunc returns the name of the resource that a call writes to. method is
// the full name, such as "/shop.v1.Orders/Put", and message is the request or the
// next message of a stream. Two calls that can change the same data must return
// the same name. callgate.ErrUngated lets a call that only reads pass without a
// check; any other error refuses the call with INVALID_ARGUMENT.
type ResourceFunc func(ctx context.Context, method string, message any) (fencing.Resource, error)

// Gate provides the interceptors. Services that write the same data must share
// one Gate. Its Guard counts and reports decisions and returns marks.
type Gate struct {
	*callgate.Guard
	resource ResourceFunc
}

// New returns a Gate over marks for the resources that resource names. With the
// option callgate.WithVerifier it accepts signed tokens only.
func New(marks callgate.Marks, resource ResourceFunc, options ...callgate.Option) (*Gate, error) {
	if marks == nil || resource == nil {
		return nil, errors.New("create a gRPC gate: marks and a function that names the resource are required")
	}
	return &Gate{Guard: callgate.New(marks, options...), resource: resource}, nil
}

// Unary returns the interceptor of unary calls. The deadline of a call limits its
// wait for the resource.
func (g *Gate) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		end, err := g.BeginNamed(ctx, values(ctx),
			func() (fencing.Resource, error) { return g.resource(ctx, info.FullMethod, request) })
		if err != nil {
			return nil, Error(err)
		}
		defer end()
		return handler(ctx, request)
	}
}

// Stream returns the interceptor of streaming calls.
func (g *Gate) Stream() grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		messages, err := g.NewStream(values(stream.Context()), Error)
		if err != nil {
			return err
		}
		return messages.Run(func() error { return handler(service, &serverStream{stream, g, info.FullMethod, messages}) })
	}
}

// serverStream gates each message that the handler receives.
type serverStream struct {
	grpc.ServerStream
	gate     *Gate
	method   string
	messages *callgate.Stream
}

// RecvMsg returns the next message after it was admitted.
func (s *serverStream) RecvMsg(message any) error {
	return s.messages.Receive(s.Context(),
		func() error { return s.ServerStream.RecvMsg(message) },
		func() (fencing.Resource, error) { return s.gate.resource(s.Context(), s.method, message) })
}
