package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/dashboard"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/peers"
	"github.com/leased-project/leased/internal/server/probes"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/remote/wire"
)

// Config has the parts of a Handler. All are required, except for Users.
type Config struct {
	Leases   pb.LeaseServiceServer
	Policies pb.PolicyServiceServer
	Redis    pb.RedisServiceServer
	Cluster  pb.ClusterServiceServer
	Router   *routing.Router
	Peers    *peers.Client
	Users    *auth.Users // nil accepts every call
	Audit    *audit.Log
	Limits   *limits.Accounts
	Probes   http.Handler
	Metrics  *metrics.Metrics // nil records nothing
	// Dashboard has the web page and its data.
	Dashboard *dashboard.Handler
}

// Handler serves the API as JSON over HTTP. Every unary method of the gRPC services
// is a POST to the path that gRPC uses, and to a shorter one, such as /v1/acquire.
type Handler struct {
	Config
	mux       *http.ServeMux
	crossSite *http.CrossOriginProtection
	transport *http.Transport // to other members
}

var _ http.Handler = (*Handler)(nil)

// method is one unary method of a service.
type method struct {
	name    string
	path    string // of gRPC
	service any
	handle  grpc.MethodHandler
}

// New returns a Handler.
func New(config Config) *Handler {
	h := &Handler{Config: config, mux: http.NewServeMux(), crossSite: http.NewCrossOriginProtection(),
		transport: config.Peers.Transport(config.Users != nil)}
	for _, service := range []struct {
		desc *grpc.ServiceDesc
		impl any
	}{{&pb.LeaseService_ServiceDesc, h.Leases}, {&pb.PolicyService_ServiceDesc, h.Policies}, {&pb.RedisService_ServiceDesc, h.Redis},
		{&pb.ClusterService_ServiceDesc, h.Cluster}} {
		for i := range service.desc.Methods {
			d := &service.desc.Methods[i]
			m := method{name: d.MethodName, path: "/" + service.desc.ServiceName + "/" + d.MethodName, service: service.impl, handle: d.Handler}
			h.handle(service.desc, m.name, func(w http.ResponseWriter, r *http.Request) { h.call(w, r, m) })
		}
	}
	h.handle(&pb.LeaseService_ServiceDesc, "Watch", h.watch)
	h.handle(&pb.LeaseService_ServiceDesc, "Overview", h.overview)
	h.handle(&pb.PolicyService_ServiceDesc, "WatchTopology", h.watchTopology)
	h.handle(&pb.ClusterService_ServiceDesc, "SaveSnapshot", h.saveSnapshot)
	h.handle(&pb.ClusterService_ServiceDesc, "InspectSnapshot", h.inspectSnapshot)
	h.handle(&pb.ClusterService_ServiceDesc, "RestoreSnapshot", h.restoreSnapshot)
	for _, path := range []string{probes.LivePath, probes.ReadyPath} {
		h.mux.HandleFunc(path, only(h.Probes.ServeHTTP, http.MethodGet, http.MethodHead))
	}
	h.mux.HandleFunc(metrics.Path, only(h.metrics(), http.MethodGet, http.MethodHead))
	h.mux.HandleFunc("/", h.page)
	h.mux.HandleFunc(dashboard.MePath, only(h.me, http.MethodGet))
	h.mux.HandleFunc(dashboard.LivePath, only(h.live, http.MethodGet))
	return h
}

// handle registers both paths of a method.
func (h *Handler) handle(service *grpc.ServiceDesc, name string, f http.HandlerFunc) {
	path := "/" + service.ServiceName + "/" + name
	checked := func(w http.ResponseWriter, r *http.Request) {
		if err := auth.Check(r.Context(), path, nil); err != nil {
			h.Audit.Refused(r.Context(), path, err)
			h.refuse(w, path, err)
			return
		}
		done, err := h.admit(r.Context(), service, name)
		if err != nil {
			h.refuse(w, path, err)
			return
		}
		defer done()
		f(w, r)
	}
	h.mux.HandleFunc(path, only(checked, http.MethodPost))
	h.mux.HandleFunc("/v1/"+dashed(name), only(checked, http.MethodPost))
}

// admit counts a call against the limits of its user until done is called.
func (h *Handler) admit(ctx context.Context, service *grpc.ServiceDesc, name string) (done func(), err error) {
	method := "/" + service.ServiceName + "/" + name
	if slices.ContainsFunc(service.Streams, func(d grpc.StreamDesc) bool { return d.StreamName == name }) {
		return h.Limits.Open(ctx, method)
	}
	return func() {}, h.Limits.CheckCall(ctx, method)
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

// ServeHTTP authenticates a call and serves it. It rejects requests that a page of
// another site makes a browser send.
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
	caller := &audit.Caller{Address: r.RemoteAddr}
	r = r.WithContext(audit.WithCaller(r.Context(), caller))
	ctx, path := r.Context(), r.URL.Path
	r, done, err := h.Users.AuthenticateHTTP(r)
	if err != nil {
		h.Audit.Refused(ctx, path, err)
		h.Metrics.Called(path, err)
		w.Header().Set("WWW-Authenticate", `Bearer realm="leased"`)
		h.answer(w, nil, err)
		return
	}
	defer done()
	if address := r.Header.Get("X-Forwarded-For"); h.Users != nil && r.Header.Get(auth.UserHeader) != "" && address != "" {
		caller.Address, caller.Via = address, r.RemoteAddr // another member forwarded the call
	}
	h.mux.ServeHTTP(w, r)
}

// call runs a unary method.
func (h *Handler) call(w http.ResponseWriter, r *http.Request, m method) {
	body, err := h.readBody(w, r)
	if err != nil {
		h.refuse(w, m.path, err)
		return
	}
	ctx := tracing.FromHTTP(r.Context(), r)
	if r.TLS != nil { // as gRPC does, for calls that depend on the caller's certificate
		ctx = peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: *r.TLS}})
	}
	h.forwardable(w, r, func() error {
		response, err := m.handle(m.service, ctx, func(into any) error { return decode(body, into.(proto.Message)) }, h.unary)
		err = auth.CallError(r.Context(), err)
		h.Metrics.Called(m.path, err)
		if m.name != "Join" && routing.IsNotLeader(err) {
			return err
		}
		message, _ := response.(proto.Message)
		h.answer(w, message, err)
		return nil
	})
}

// unary checks the rights of a call and records it, as the interceptors of gRPC do.
func (h *Handler) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := auth.CheckUnary(ctx, request, info, func(ctx context.Context, request any) (any, error) {
		return h.Audit.UnaryEvents(ctx, request, info, handler)
	})
	h.Audit.Refused(ctx, info.FullMethod, err)
	return response, err
}

// refuse answers a call of a method that is not run.
func (h *Handler) refuse(w http.ResponseWriter, method string, err error) {
	h.Metrics.Called(method, err)
	h.answer(w, nil, err)
}

// metrics returns the handler of scrapes, for users with the right Metrics.
func (h *Handler) metrics() http.HandlerFunc {
	scrape := h.Metrics.Handler()
	return func(w http.ResponseWriter, r *http.Request) {
		err := auth.AllowMetrics(r.Context())
		if err != nil {
			h.Audit.Refused(r.Context(), metrics.Path, err)
		} else {
			err = h.Limits.CheckCall(r.Context(), metrics.Path)
		}
		if err != nil {
			h.answer(w, nil, err)
			return
		}
		scrape.ServeHTTP(w, r)
	}
}

// answer writes a message, or an error with the status of its kind.
func (h *Handler) answer(w http.ResponseWriter, message proto.Message, err error) {
	if err != nil {
		fail(w, h.Router.NameLeader(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(Encode(message)) // nothing can be done if the client is gone
}

// fail writes an error with its HTTP status.
func fail(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	setRetryAfter(w, err)
	w.WriteHeader(statusOf(err))
	_, _ = w.Write(Encode(wire.FromError(err)))
}
