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
	carried  Carried
	token    fencing.Token // for resource
	resource fencing.Resource
	end      func()
	refused  error
}

// NewStream returns a Stream that carries a token. The signature of a signed token
// is verified with the first message.
func (g *Guard) NewStream(carried Carried) *Stream { return &Stream{guard: g, carried: carried} }

// Receive releases the resource of the previous message, receives the next
// message, asks name for its resource and begins its call. The end of the
// messages (io.EOF) is gated too, because handlers may write then what they have
// collected.
func (s *Stream) Receive(ctx context.Context, receive func() error, name func() (fencing.Resource, error)) error {
	s.release()
	if s.refused != nil {
		return s.refused
	}
	received := receive()
	if received != nil && !errors.Is(received, io.EOF) {
		return received
	}
	if received == nil {
		resource, err := Named(name())
		if errors.Is(err, ErrUngated) {
			return nil
		}
		if err == nil && s.resource != "" && s.resource != resource {
			err = fmt.Errorf("%w: the stream is for %q, but a message names %q; open one stream for each resource",
				fencing.ErrInvalidResource, string(s.resource), string(resource))
		}
		if err == nil && s.resource == "" {
			s.token, err = s.guard.TokenOf(ctx, s.carried, resource)
		}
		if err != nil {
			s.refused = err
			return err
		}
		s.resource = resource
	}
	if s.resource == "" {
		return received
	}
	end, err := s.guard.Begin(ctx, s.resource, s.token)
	if err != nil {
		s.refused = err
		return err
	}
	s.end = end
	return received
}

// Close ends the call of the last message. If a message was refused, Close
// returns why; the whole call has then failed, whatever its handler returned.
func (s *Stream) Close() error {
	s.release()
	return s.refused
}

func (s *Stream) release() {
	if s.end != nil {
		s.end()
		s.end = nil
	}
}
