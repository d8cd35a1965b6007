package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// ndjson is the content type of lines of JSON.
	ndjson = "application/x-ndjson"
	// uploadChunk is the size of the parts in which an uploaded file is read.
	uploadChunk = 1 << 16
)

// stream runs a method that streams in one direction. Messages to the client are lines of
// JSON; the messages of a file become the file.
func (x *exchange) stream(service any, m *grpc.StreamDesc) {
	if m.ClientStreams {
		x.r.Body = &pacedBody{x.r.Body, x.w, x.Chain.Limits.SendTimeout}
	}
	s := &stream{exchange: x, upload: m.ClientStreams}
	err := x.Chain.Stream(s, x.method, func(chained grpc.ServerStream, done func()) error {
		defer done()
		// What was sent cannot be taken back, and a file can be read only once.
		mayForward := func() bool { return s.contentType == "" && !s.received }
		run := func() error { return m.Handler(service, chained) }
		forward := func(leader string) error {
			s.received = x.body == nil // the body of a file is closed even if the leader is not reached
			if x.body != nil {
				x.r.Body, x.r.ContentLength = io.NopCloser(bytes.NewReader(x.body)), int64(len(x.body))
			}
			return x.forward(x.w, x.r.WithContext(chained.Context()), leader)
		}
		return x.orForward(chained.Context(), &forwardable{mayForward: mayForward, repeatable: !m.ClientStreams, run: run,
			forward: forward})
	})
	switch gone := x.r.Context().Err() != nil; {
	case err == nil || x.forwarded:
	case gone && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
	case s.contentType == "":
		fail(x.w, err)
	case s.contentType == ndjson: // without it, the stream would seem complete
		_ = writeLine(x.w, wire.FromError(err))
	default:
		panic(http.ErrAbortHandler) // the file must not seem complete
	}
}

// stream is a gRPC stream over HTTP.
type stream struct {
	grpc.ServerStream
	*exchange
	upload      bool   // the client sends a file
	received    bool   // a part of the file was read
	contentType string // of the answer, empty before it has begun
}

func (s *stream) Context() context.Context { return s.r.Context() }

// SendMsg writes a line, a part of a file, or the answer to an upload.
func (s *stream) SendMsg(message any) error {
	kind := ndjson
	chunk, isFile := message.(*pb.Chunk)
	switch {
	case isFile:
		kind = "application/octet-stream"
	case s.upload:
		kind = "application/json"
	}
	if s.contentType == "" {
		s.contentType = kind
		s.w.Header().Set("Content-Type", kind)
	}
	if isFile {
		_, err := s.w.Write(chunk.Data)
		return err
	}
	return writeLine(s.w, message.(proto.Message))
}

// RecvMsg reads a part of a file, or the request in the body. The body of a request for a
// snapshot is ignored.
func (s *stream) RecvMsg(message any) error {
	switch m := message.(type) {
	case *pb.SaveSnapshotRequest:
		return nil
	case *pb.Chunk:
		s.received = true
		m.Data = make([]byte, uploadChunk)
		n, err := s.r.Body.Read(m.Data)
		m.Data = m.Data[:n]
		switch {
		case n > 0: // the next call returns the error, if there is one
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("%w: read the file in the body: %w", engine.ErrInvalid, err)
		}
		return err
	}
	return s.decode(message.(proto.Message))
}

// writeLine writes a message as a line of JSON.
func writeLine(w http.ResponseWriter, m proto.Message) error {
	if _, err := w.Write(Encode(m)); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
