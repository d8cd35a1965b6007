package limits

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/leased-project/leased/lease/engine"
)

// ErrSlow ends the stream of a client that does not read.
var ErrSlow = fmt.Errorf("%w: the client does not read its stream, so the service ends it; sessions stay open until their TTL passes: "+
	"connect again and attach them", engine.ErrLimit)

// pacedStream is a stream whose client must read each message within SendTimeout.
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

// servePaced runs the handler of a stream. It returns ErrSlow if the client does not
// read; gRPC then ends the stream, and with it the handler. The client gets the error
// when it has read the messages before it. If it does not read them within another
// SendTimeout, its connection is closed, because gRPC would keep them.
func (a *Accounts) servePaced(server any, stream grpc.ServerStream, handler grpc.StreamHandler, done func()) error {
	slow := make(chan struct{}, 1)
	late := time.AfterFunc(a.SendTimeout, func() { slow <- struct{}{} })
	late.Stop()
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- handler(server, &pacedStream{ServerStream: stream, late: late, limit: a.SendTimeout})
	}()
	select {
	case err := <-ended:
		return err
	case <-slow:
		if client, ok := peer.FromContext(stream.Context()); ok && a.CloseLater != nil {
			a.CloseLater(client.Addr, a.SendTimeout)
		}
		return fmt.Errorf("%w; limit-send-timeout allows %v for a message", ErrSlow, a.SendTimeout)
	}
}
