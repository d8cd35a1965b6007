package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// maxBody bounds the body of a JSON call.
const maxBody = 1 << 20

// bridge serves the API as HTTP/JSON. Every unary method of the gRPC services is
// a POST to its path, and to a shorter one, as /v1/acquire; it calls the same
// method that gRPC calls. A call that only the leader can serve is forwarded to it.
type bridge struct {
	server *Server
	mux    *http.ServeMux

	once  sync.Once
	peers *http.Transport // to other members
}

// method is one unary method of a service.
type method struct {
	name    string
	service any
	handle  grpc.MethodHandler
}

func newBridge(s *Server) *bridge {
	b := &bridge{server: s, mux: http.NewServeMux()}
	for _, service := range []struct {
		desc *grpc.ServiceDesc
		impl any
	}{{&pb.LeaseService_ServiceDesc, s.lease}, {&pb.PolicyService_ServiceDesc, s.admin}, {&pb.RedisService_ServiceDesc, s.admin},
		{&pb.ClusterService_ServiceDesc, s.admin}} {
		for i := range service.desc.Methods {
			d := &service.desc.Methods[i]
			m := method{name: d.MethodName, service: service.impl, handle: d.Handler}
			b.handle(service.desc.ServiceName, m.name, func(w http.ResponseWriter, r *http.Request) { b.call(w, r, m) })
		}
	}
	leases, cluster := pb.LeaseService_ServiceDesc.ServiceName, pb.ClusterService_ServiceDesc.ServiceName
	b.handle(leases, "Watch", b.watch)
	b.handle(pb.PolicyService_ServiceDesc.ServiceName, "WatchTopology", b.watchTopology)
	b.handle(cluster, "SaveSnapshot", b.saveSnapshot)
	b.handle(cluster, "InspectSnapshot", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.admin.inspectSnapshot(r.Body)
		b.answer(w, info, err)
	})
	b.handle(cluster, "RestoreSnapshot", func(w http.ResponseWriter, r *http.Request) {
		b.atLeader(w, r, func() error {
			if !s.config.Node.Leads() { // the body can be read once
				return s.notLeader()
			}
			response, err := s.admin.restoreSnapshot(r.Context(), r.Body)
			b.answer(w, response, err)
			return nil
		})
	})
	b.mux.HandleFunc("GET /healthz", b.healthz)
	b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b.fail(w, http.StatusNotFound, fmt.Errorf("%w: there is no %s %s; calls are POST, as /v1/acquire, and docs/API.md lists them",
			engine.ErrInvalid, r.Method, r.URL.Path))
	})
	return b
}

// handle registers both paths of a method.
func (b *bridge) handle(service, name string, f http.HandlerFunc) {
	routed := func(w http.ResponseWriter, r *http.Request) {
		if err := mayCall(r.Context(), "/"+service+"/"+name); err != nil {
			b.fail(w, http.StatusForbidden, err)
			return
		}
		f(w, r)
	}
	b.mux.HandleFunc("POST /"+service+"/"+name, routed)
	b.mux.HandleFunc("POST /v1/"+dashed(name), routed)
}

// dashed turns OpenSession into open-session.
func dashed(name string) string {
	var text strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			text.WriteByte('-')
		}
		text.WriteRune(unicode.ToLower(c))
	}
	return text.String()
}

// strangers refuses requests that a page of another site makes a browser send.
var strangers = http.NewCrossOriginProtection()

// ServeHTTP answers a call.
func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := strangers.Check(r); err != nil {
		b.fail(w, http.StatusForbidden, fmt.Errorf("%w: %w", engine.ErrInvalid, err))
		return
	}
	r, done, ok := b.admitHTTP(w, r)
	if !ok {
		return
	}
	defer done()
	b.mux.ServeHTTP(w, r)
}

// call runs a unary method.
func (b *bridge) call(w http.ResponseWriter, r *http.Request, m method) {
	body, err := readBody(w, r)
	if err != nil {
		b.answer(w, nil, err)
		return
	}
	b.atLeader(w, r, func() error {
		response, err := m.handle(m.service, r.Context(), func(into any) error { return decode(body, into.(proto.Message)) }, nil)
		err = removed(r.Context(), err)
		if m.name != "Join" && isNotLeader(err) {
			return err
		}
		message, _ := response.(proto.Message)
		b.answer(w, message, err)
		return nil
	})
}

// readBody reads the body, and leaves the request with a copy of it. The content
// type is checked because a page of a stranger can make a browser send any other.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, fmt.Errorf("%w: content type %q, use application/json", engine.ErrInvalid, r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("%w: read the body, of at most %d bytes: %w", engine.ErrInvalid, maxBody, err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return body, nil
}

func decode(body []byte, into proto.Message) error {
	if len(body) == 0 {
		return nil
	}
	if err := protojson.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	return nil
}

// answer writes a message, or an error.
func (b *bridge) answer(w http.ResponseWriter, message proto.Message, err error) {
	if err != nil {
		err = b.server.explain(err)
		b.fail(w, httpCode(err), err)
		return
	}
	text, err := encode(message)
	if err != nil {
		b.fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // if the client is gone there is nothing to do
}

// fail writes an Error.
func (b *bridge) fail(w http.ResponseWriter, code int, err error) {
	text, encodeErr := encode(wire.FromError(err))
	if encodeErr != nil {
		text = []byte(`{"code":"uncertain"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}

// httpCode returns the HTTP status of an error.
func httpCode(err error) int {
	switch wire.FromError(err).Code {
	case wire.CodeHeld, wire.CodeModeMismatch, wire.CodeOutdated, wire.CodeBehind:
		return http.StatusConflict
	case wire.CodeNotHeld:
		return http.StatusNotFound
	case wire.CodeExpired, wire.CodeLost, wire.CodeTaken, wire.CodeReleased:
		return http.StatusGone
	case wire.CodeUnauthenticated:
		return http.StatusUnauthorized
	case wire.CodeUnsupported:
		return http.StatusNotImplemented
	case wire.CodeInvalid, wire.CodeInvalidResource:
		return http.StatusBadRequest
	case wire.CodeUnavailable, wire.CodeNotLeader:
		return http.StatusServiceUnavailable
	case wire.CodeUncertain, wire.CodeDeadline:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// watch streams events, a line of JSON each. If it ends before the caller does the
// last line is an Error.
func (b *bridge) watch(w http.ResponseWriter, r *http.Request) {
	request := &pb.WatchRequest{}
	body, err := readBody(w, r)
	if err == nil {
		err = decode(body, request)
	}
	if err != nil {
		b.answer(w, nil, err)
		return
	}
	b.atLeader(w, r, func() error {
		lines := &lineWriter{to: w}
		err := b.server.lease.watch(r.Context(), request, func(e *pb.Event) error { return lines.write(e) })
		switch {
		case gone(r.Context(), err):
		case !lines.begun && isNotLeader(err):
			return err
		case !lines.begun:
			b.answer(w, nil, err)
		default: // a watch that has ended must not look as if nothing more had happened
			_ = lines.write(wire.FromError(b.server.explain(err)))
		}
		return nil
	})
}

// watchTopology streams topologies, a line of JSON each.
func (b *bridge) watchTopology(w http.ResponseWriter, r *http.Request) {
	if _, err := readBody(w, r); err != nil {
		b.answer(w, nil, err)
		return
	}
	lines := &lineWriter{to: w}
	err := b.server.admin.watchTopology(r.Context(), func(t *pb.Topology) error { return lines.write(t) })
	if !gone(r.Context(), err) {
		_ = lines.write(wire.FromError(b.server.explain(err)))
	}
}

// lineWriter writes messages, a line of JSON each.
type lineWriter struct {
	to    http.ResponseWriter
	begun bool
}

func (l *lineWriter) write(m proto.Message) error {
	text, err := encode(m)
	if err != nil {
		return err
	}
	if !l.begun {
		l.to.Header().Set("Content-Type", "application/x-ndjson")
		l.begun = true
	}
	if _, err := l.to.Write(append(text, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(l.to).Flush()
}

// saveSnapshot sends the file.
func (b *bridge) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	started := &startedWriter{to: w}
	_, err := b.server.router.node.SaveSnapshot(r.Context(), started)
	switch {
	case err == nil:
	case started.begun:
		panic(http.ErrAbortHandler) // the file must not look complete
	default:
		b.answer(w, nil, err)
	}
}

// startedWriter sets the content type with the first byte.
type startedWriter struct {
	to    http.ResponseWriter
	begun bool
}

// Write passes data on.
func (s *startedWriter) Write(data []byte) (int, error) {
	if !s.begun {
		s.to.Header().Set("Content-Type", "application/octet-stream")
		s.begun = true
	}
	return s.to.Write(data)
}

// healthz is for load balancers and process supervisors.
func (b *bridge) healthz(w http.ResponseWriter, r *http.Request) {
	response, err := b.server.admin.Health(r.Context(), nil)
	if err == nil && response.Status != "serving" {
		err = errors.New(response.Reason)
		b.fail(w, http.StatusServiceUnavailable, fmt.Errorf("%w: %w", engine.ErrUnavailable, err))
		return
	}
	b.answer(w, response, err)
}

var _ http.Handler = (*bridge)(nil)
