package calls

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/wire"
)

// UnaryInterceptor runs a unary gRPC call.
func (c *Chain) UnaryInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	response, err := c.Unary(ctx, info.FullMethod, func() (any, error) { return request, nil }, handler)
	return response, wire.ToStatus(err)
}

// StreamInterceptor runs a gRPC stream.
func (c *Chain) StreamInterceptor(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	return wire.ToStatus(c.Stream(stream, info.FullMethod, func(stream grpc.ServerStream, done func()) error {
		return c.serve(server, stream, handler, done)
	}))
}

// serve runs the handler of a stream until it ends, its user is removed, its client does not
// read, or EndStream is called. In the last three cases the handler may be blocked; it ends when
// gRPC has ended the stream, after serve has returned. The client gets the error when it has read the
// messages before it. If a client that is too slow does not read them within another
// SendTimeout, its connection is closed, because gRPC would keep them.
func (c *Chain) serve(server any, stream grpc.ServerStream, handler grpc.StreamHandler, done func()) error {
	slow := make(chan struct{}, 1)
	late := time.AfterFunc(c.Limits.SendTimeout, func() { slow <- struct{}{} })
	late.Stop()
	ended, ordered := make(chan error, 1), make(chan error, 1)
	paced := &pacedStream{ServerStream: stream, ctx: context.WithValue(stream.Context(), endKey{}, ordered),
		late: late, limit: c.Limits.SendTimeout}
	go func() {
		defer done()
		ended <- handler(server, paced)
	}()
	select {
	case err := <-ended:
		return err
	case err := <-ordered:
		return err
	case <-auth.Removed(stream.Context()):
		return context.Canceled // the chain returns the cause
	case <-slow:
		if client, ok := peer.FromContext(stream.Context()); ok {
			c.CloseLater(client.Addr, c.Limits.SendTimeout)
		}
		return fmt.Errorf("%w; limit-send-timeout allows %v for a message", limits.ErrSlow, c.Limits.SendTimeout)
	}
}

// endKey is the key of the channel of EndStream.
type endKey struct{}

// EndStream ends the gRPC stream of a context with an error, also while its handler is blocked in
// Recv or Send, which then fail.
func EndStream(ctx context.Context, err error) {
	if ordered, ok := ctx.Value(endKey{}).(chan error); ok {
		select {
		case ordered <- err:
		default: // it ends already
		}
	}
}

// pacedStream is a stream whose client must read each message within a limit.
type pacedStream struct {
	grpc.ServerStream
	ctx   context.Context
	late  *time.Timer
	limit time.Duration
}

// Context lets the handler call EndStream.
func (s *pacedStream) Context() context.Context { return s.ctx }

// SendMsg sends a message.
func (s *pacedStream) SendMsg(message any) error {
	s.late.Reset(s.limit)
	defer s.late.Stop()
	return s.ServerStream.SendMsg(message)
}
