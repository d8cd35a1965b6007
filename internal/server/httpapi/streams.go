package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// uploadChunk is the size of the parts in which an uploaded file is read.
const uploadChunk = 1 << 16

// watch streams events, a line of JSON for each.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request) {
	request := &pb.WatchRequest{}
	body, err := h.readBody(w, r)
	if err == nil {
		err = decode(body, request)
	}
	if err == nil {
		err = auth.Check(r.Context(), pb.LeaseService_Watch_FullMethodName, request)
		h.Audit.Refused(r.Context(), pb.LeaseService_Watch_FullMethodName, err)
	}
	if err != nil {
		h.answer(w, nil, err)
		return
	}
	h.forwardable(w, r, func() error {
		lines := &responseStream[pb.Event]{ctx: r.Context(), to: w, contentType: ndjson, write: writeLine[*pb.Event]}
		err := h.Leases.Watch(request, lines)
		return h.endStream(w, r, lines.begun, err)
	})
}

// overview streams lists of locks, a line of JSON for each.
func (h *Handler) overview(w http.ResponseWriter, r *http.Request) {
	request := &pb.OverviewRequest{}
	body, err := h.readBody(w, r)
	if err == nil {
		err = decode(body, request)
	}
	if err == nil {
		err = auth.Check(r.Context(), pb.LeaseService_Overview_FullMethodName, request)
		h.Audit.Refused(r.Context(), pb.LeaseService_Overview_FullMethodName, err)
	}
	if err != nil {
		h.answer(w, nil, err)
		return
	}
	h.forwardable(w, r, func() error {
		lines := &responseStream[pb.OverviewResponse]{ctx: r.Context(), to: w, contentType: ndjson, write: writeLine[*pb.OverviewResponse]}
		err := h.Leases.Overview(request, lines)
		return h.endStream(w, r, lines.begun, err)
	})
}

// watchTopology streams topologies, a line of JSON for each.
func (h *Handler) watchTopology(w http.ResponseWriter, r *http.Request) {
	if _, err := h.readBody(w, r); err != nil {
		h.answer(w, nil, err)
		return
	}
	lines := &responseStream[pb.Topology]{ctx: r.Context(), to: w, contentType: ndjson, write: writeLine[*pb.Topology]}
	err := h.Policies.WatchTopology(&pb.WatchTopologyRequest{}, lines)
	if err := h.endStream(w, r, lines.begun, err); err != nil {
		h.answer(w, nil, err)
	}
}

// endStream ends a stream of lines. The last line of a stream that the caller did
// not end is an error, so that the stream does not seem complete. endStream returns
// the not-leader error of a stream that has not begun.
func (h *Handler) endStream(w http.ResponseWriter, r *http.Request, begun bool, err error) error {
	err = auth.CallError(r.Context(), err)
	switch {
	case r.Context().Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
	case !begun && routing.IsNotLeader(err):
		return err
	case !begun:
		h.answer(w, nil, err)
	default:
		_ = writeLine(w, wire.FromError(h.Router.NameLeader(err)))
	}
	return nil
}

// responseStream is a gRPC stream that writes its messages to an HTTP response.
type responseStream[T any] struct {
	grpc.ServerStream
	ctx         context.Context
	to          http.ResponseWriter
	contentType string
	write       func(w http.ResponseWriter, message *T) error
	begun       bool
}

func (s *responseStream[T]) Context() context.Context { return s.ctx }

func (s *responseStream[T]) Send(message *T) error {
	if !s.begun {
		s.begun = true
		s.to.Header().Set("Content-Type", s.contentType)
	}
	return s.write(s.to, message)
}

// ndjson is the content type of lines of JSON.
const ndjson = "application/x-ndjson"

// writeLine writes a message as a line of JSON.
func writeLine[M proto.Message](w http.ResponseWriter, m M) error {
	if _, err := w.Write(Encode(m)); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// saveSnapshot sends a file.
func (h *Handler) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	file := &responseStream[pb.Chunk]{ctx: r.Context(), to: w, contentType: "application/octet-stream",
		write: func(w http.ResponseWriter, chunk *pb.Chunk) error {
			_, err := w.Write(chunk.Data)
			return err
		}}
	err := h.Cluster.SaveSnapshot(&pb.SaveSnapshotRequest{}, file)
	h.Audit.Stream(r.Context(), pb.ClusterService_SaveSnapshot_FullMethodName, err)
	switch {
	case err == nil:
	case file.begun:
		panic(http.ErrAbortHandler) // the file must not seem complete
	default:
		h.answer(w, nil, err)
	}
}

func (h *Handler) inspectSnapshot(w http.ResponseWriter, r *http.Request) {
	file := &upload[pb.SnapshotInfo]{ctx: r.Context(), from: &pacedBody{r.Body, w, h.Limits.SendTimeout}}
	err := h.Cluster.InspectSnapshot(file)
	h.answer(w, file.response, err)
}

func (h *Handler) restoreSnapshot(w http.ResponseWriter, r *http.Request) {
	r.Body = &pacedBody{r.Body, w, h.Limits.SendTimeout}
	h.forwardable(w, r, func() error {
		file := &upload[pb.RestoreSnapshotResponse]{ctx: r.Context(), from: r.Body}
		err := h.Cluster.RestoreSnapshot(file)
		h.Audit.Stream(r.Context(), pb.ClusterService_RestoreSnapshot_FullMethodName, err)
		if routing.IsNotLeader(err) && !file.begun { // the body can be read only once
			return err
		}
		h.answer(w, file.response, err)
		return nil
	})
}

// upload is the gRPC stream of a file that is the body of a request.
type upload[T any] struct {
	grpc.ServerStream
	ctx      context.Context
	from     io.Reader
	begun    bool
	response *T
}

func (u *upload[T]) Context() context.Context { return u.ctx }

func (u *upload[T]) Recv() (*pb.Chunk, error) {
	u.begun = true
	data := make([]byte, uploadChunk)
	n, err := u.from.Read(data)
	if n > 0 {
		return &pb.Chunk{Data: data[:n]}, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: read the file in the body: %w", engine.ErrInvalid, err)
	}
	return nil, err
}

func (u *upload[T]) SendAndClose(response *T) error {
	u.response = response
	return nil
}
