package callgate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/leased-project/leased/fencing"
)

// Stream gates one call that receives many messages. Each message that the
// handler receives is a gated call of its own: its turn lasts from the moment
// the handler has it until the handler asks for the next one or returns. So a
// client that is paused in the middle of a stream holds up nobody, and is
// refused with its next message once a newer token has been admitted.
//
// A Stream belongs to one resource, the one its first gated message names. It
// is used by one goroutine.
type Stream struct {
	guard    *Guard
	token    fencing.Token
	resource fencing.Resource
	end      func()
	refused  error
}

// NewStream returns a Stream that carries token.
func (g *Guard) NewStream(token fencing.Token) *Stream { return &Stream{guard: g, token: token} }

// Receive ends the turn of the message before, receives the next, asks name for
// its resource and takes the turn. The end of the messages (io.EOF) takes it
// too, since handlers write then what they have collected.
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
		resource, err := name()
		if errors.Is(err, ErrUngated) {
			return nil
		}
		if err == nil && s.resource != "" && s.resource != resource {
			err = fmt.Errorf("%w: the stream began with %q and goes on with %q; open one stream for each resource",
				fencing.ErrInvalidResource, string(s.resource), string(resource))
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
	end, err := s.guard.Take(ctx, s.resource, s.token)
	if err != nil {
		s.refused = err
		return err
	}
	s.end = end
	return received
}

// Close ends the last turn. It returns why a message was not let through, if
// one was not: the call has then failed, whatever its handler says.
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
