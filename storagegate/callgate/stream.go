package callgate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/leased-project/leased/fencing"
)

// Stream gates one call that receives many messages. Each message is a gated
// call of its own: it holds the resource from the moment the handler receives
// the message until the handler asks for the next one or returns. So a client
// that is paused in the middle of a stream blocks no one, and its next message
// is refused if a newer token has been admitted.
//
// A Stream belongs to the resource that its first gated message names. It must
// be used by one goroutine only.
type Stream struct {
	guard    *Guard
	convert  func(error) error
	carried  *Carried
	resource fencing.Resource
	end      func()
	refused  error // converted
}

// NewStream returns a Stream of a call that carries a token in values. The signature
// of a signed token is verified with the first message, and its expiry with each one: a
// stream cannot last longer than its signature. convert converts the errors of the gate
// for the client.
func (g *Guard) NewStream(values []string, convert func(error) error) (*Stream, error) {
	carried, err := g.Carry(values)
	if err != nil {
		return nil, convert(err)
	}
	return &Stream{guard: g, carried: carried, convert: convert}, nil
}

// Receive releases the resource of the previous message, receives the next
// message, asks name for its resource and begins its call. The end of the
// messages (io.EOF) is gated too, because handlers may write then what they have
// collected. Receive returns the errors of receive unchanged.
func (s *Stream) Receive(ctx context.Context, receive func() error, name func() (fencing.Resource, error)) error {
	s.release()
	if s.refused != nil {
		return s.refused
	}
	received := receive()
	if received != nil && !errors.Is(received, io.EOF) {
		return received
	}
	if err := s.begin(ctx, received == nil, name); err != nil {
		s.refused = s.convert(err)
		return s.refused
	}
	return received
}

// begin begins the call of a message, or of the end of the messages, which has no
// name of its own.
func (s *Stream) begin(ctx context.Context, named bool, name func() (fencing.Resource, error)) error {
	if named {
		resource, err := Named(name())
		switch {
		case errors.Is(err, ErrUngated):
			return nil
		case err != nil:
			return err
		case s.resource == "":
			s.resource = resource
		case s.resource != resource:
			return fmt.Errorf("%w: the stream is for %q, but a message names %q; open one stream for each resource",
				fencing.ErrInvalidResource, string(s.resource), string(resource))
		}
	}
	if s.resource == "" {
		return nil
	}
	end, err := s.guard.BeginCarried(ctx, s.resource, s.carried)
	if err != nil {
		return err
	}
	s.end = end
	return nil
}

// Run runs the handler of the call and ends the call of the last message. If a
// message was refused, Run returns why: the whole call has then failed, whatever its
// handler returned.
func (s *Stream) Run(handler func() error) error {
	defer s.release()
	if err := handler(); s.refused == nil {
		return err
	}
	return s.refused
}

func (s *Stream) release() {
	if s.end != nil {
		s.end()
		s.end = nil
	}
}
