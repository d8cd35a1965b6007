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

// serve runs the handler of a stream until it ends, its user is removed, or its client does
// not read. In the last two cases the handler may be blocked; it ends when gRPC has ended
// the stream, after serve has returned. The client gets the error when it has read the
// messages before it. If a client that is too slow does not read them within another
// SendTimeout, its connection is closed, because gRPC would keep them.
func (c *Chain) serve(server any, stream grpc.ServerStream, handler grpc.StreamHandler, done func()) error {
	slow := make(chan struct{}, 1)
	late := time.AfterFunc(c.Limits.SendTimeout, func() { slow <- struct{}{} })
	late.Stop()
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- handler(server, &pacedStream{ServerStream: stream, late: late, limit: c.Limits.SendTimeout})
	}()
	select {
	case err := <-ended:
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

// pacedStream is a stream whose client must read each message within a limit.
type pacedStream struct {
	grpc.ServerStream
	late  *time.Timer
	limit time.Duration
}

// SendMsg sends a message.
func (s *pacedStream) SendMsg(message any) error {
	s.late.Reset(s.limit)
	defer s.late.Stop()
	return s.ServerStream.SendMsg(message)
}
