package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	leasedv1 "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/dashboard"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
)

// Config has the parts of a Handler. All are required.
type Config struct {
	Chain    *calls.Chain
	Services []Service
	Probes   Probes
	// Forwarder connects to the leader.
	Forwarder *routing.Forwarder
	// Dashboard has the web page and its data.
	Dashboard *dashboard.Handler
}

// Service is a gRPC service and its implementation.
type Service struct {
	Desc *grpc.ServiceDesc
	Impl any
}

// Handler serves the API as JSON over HTTP. Every method of the gRPC services, except for
// the session stream, is a POST to the path that gRPC uses, and to a shorter one, such as
// /v1/acquire.
type Handler struct {
	Config
	mux       *http.ServeMux
	crossSite *http.CrossOriginProtection
	transport *http.Transport // to other members, for streams
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler.
func New(config Config) *Handler {
	h := &Handler{Config: config, mux: http.NewServeMux(), crossSite: http.NewCrossOriginProtection(),
		transport: &http.Transport{DialContext: config.Forwarder.Dial, IdleConnTimeout: time.Minute}}
	for _, service := range config.Services {
		for i := range service.Desc.Methods {
			m := &service.Desc.Methods[i]
			h.handle(service.Desc, m.MethodName, func(x *exchange) { x.unary(service.Impl, m) })
		}
		for i := range service.Desc.Streams {
			if s := &service.Desc.Streams[i]; !s.ClientStreams || !s.ServerStreams {
				h.handle(service.Desc, s.StreamName, func(x *exchange) { x.stream(service.Impl, s) })
			}
		}
	}
	for _, path := range []string{LivePath, ReadyPath} {
		h.mux.HandleFunc(path, only(config.Probes.ServeHTTP, http.MethodGet, http.MethodHead))
	}
	h.mux.HandleFunc(OpenAPIPath, only(openAPI, http.MethodGet, http.MethodHead))
	scrape := h.chained(metrics.Path, false, serve(config.Chain.Metrics.Handler().ServeHTTP))
	h.mux.HandleFunc(metrics.Path, only(scrape, http.MethodGet, http.MethodHead))
	h.mux.HandleFunc(calls.MePath, only(h.chained(calls.MePath, false, serve(h.Dashboard.Me)), http.MethodGet))
	h.mux.HandleFunc(calls.LivePath, only(h.chained(calls.LivePath, true, h.live), http.MethodGet))
	h.mux.HandleFunc("/", h.page)
	return h
}

// OpenAPIPath is the path of the description of the API, which everyone may read.
const OpenAPIPath = "/openapi.yaml"

// openAPI serves the description of the API.
func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(leasedv1.OpenAPI) // nothing can be done if the client is gone
}

// LeaderHeader names the API address of the leader in every answer to a call, if the member knows
// it. A client that calls the leader saves the hop from a follower.
const LeaderHeader = "Leased-Leader"

// handle registers both paths of a method.
func (h *Handler) handle(service *grpc.ServiceDesc, name string, f func(*exchange)) {
	path := "/" + service.ServiceName + "/" + name
	serve := only(func(w http.ResponseWriter, r *http.Request) {
		if leader := h.Chain.Router.LeaderAddress(); leader != "" {
			w.Header().Set(LeaderHeader, leader)
		}
		f(&exchange{Handler: h, method: path, w: w, r: r})
	}, http.MethodPost)
	h.mux.HandleFunc(path, serve)
	h.mux.HandleFunc(ShortPath(name), serve)
}

// ShortPath returns the short path of a method: /v1/open-session for OpenSession.
func ShortPath(name string) string {
	var text strings.Builder
	text.WriteString("/v1/")
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			text.WriteByte('-')
		}
		text.WriteRune(unicode.ToLower(c))
	}
	return text.String()
}

// ServeHTTP serves a request. It rejects requests that a page of another site makes a
// browser send.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = h.pace(w, r)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := h.checkHost(r); err != nil {
		fail(w, err)
		return
	}
	if err := h.crossSite.Check(r); err != nil {
		fail(w, &statusError{http.StatusForbidden, err.Error()})
		return
	}
	h.mux.ServeHTTP(w, r.WithContext(incoming(r)))
}

// chained returns the handler of a path that is not a gRPC method, behind the chain. f
// writes nothing if it returns an error.
func (h *Handler) chained(path string, streams bool,
	f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h.Chain.Run(r.Context(), path, streams, func(ctx context.Context) error { return f(w, r.WithContext(ctx)) })
		if err != nil {
			fail(w, err)
		}
	}
}

// serve returns a handler without errors as one that chained takes.
func serve(f http.HandlerFunc) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		f(w, r)
		return nil
	}
}

// page serves the files of the dashboard, which everyone may read, and refuses all unknown
// paths.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	if h.Dashboard.IsFile(r.URL.Path) {
		only(h.Dashboard.File, http.MethodGet, http.MethodHead)(w, r)
		return
	}
	h.chained(calls.UnknownPath, false, noSuchPath)(w, r)
}

// live serves the data of the dashboard. A follower forwards the stream to the leader if
// there is one, and otherwise answers from its own state.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) error {
	if leader := h.otherLeader(); leader != "" && r.Header.Get(forwardedHeader) == "" {
		return h.forward(w, r, leader)
	}
	return h.Dashboard.Live(w, r)
}

// answer writes a message.
func answer(w http.ResponseWriter, message proto.Message) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(Encode(message)) // nothing can be done if the client is gone
}

// fail writes an error with its HTTP status.
func fail(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="leased"`)
	}
	w.Header().Set("Content-Type", "application/json")
	message := wire.FromError(err)
	if after, _ := time.ParseDuration(message.RetryAfter); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(Encode(message))
}
