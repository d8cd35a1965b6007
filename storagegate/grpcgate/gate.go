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
		carried, err := g.Carry(values(ctx))
		if err != nil {
			return nil, Error(err)
		}
		end, err := g.BeginNamed(ctx, carried, func() (fencing.Resource, error) { return g.resource(ctx, info.FullMethod, request) })
		if err != nil {
			return nil, Error(err)
		}
		defer end()
		return handler(ctx, request)
	}
}

// Stream returns the interceptor of streaming calls.
func (g *Gate) Stream() grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		carried, err := g.Carry(values(stream.Context()))
		if err != nil {
			return Error(err)
		}
		gated := &serverStream{ServerStream: stream, gate: g, method: info.FullMethod, messages: g.NewStream(carried)}
		defer func() {
			if refused := gated.messages.Close(); refused != nil {
				err = Error(refused)
			}
		}()
		return handler(service, gated)
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
	var transport error
	err := s.messages.Receive(s.Context(),
		func() error { transport = s.ServerStream.RecvMsg(message); return transport },
		func() (fencing.Resource, error) { return s.gate.resource(s.Context(), s.method, message) })
	if err == nil || err == transport {
		return err // io.EOF must not be converted
	}
	return Error(err)
}
