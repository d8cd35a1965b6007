package httpapi

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/engine"
)

// exchange is the request and the answer of one call of a gRPC method.
type exchange struct {
	*Handler
	method    string // in gRPC
	w         http.ResponseWriter
	r         *http.Request
	forwarded bool // the leader has answered
}

// incoming returns the context of a request as gRPC would have it, so the chain sees no
// difference: headers as metadata, and the connection as the peer.
func incoming(r *http.Request) context.Context {
	headers := metadata.MD{}
	for _, name := range []string{"Authorization", auth.UserHeader, "X-Forwarded-For", tracing.Header, "User-Agent"} {
		if values := r.Header.Values(name); len(values) > 0 {
			headers.Set(name, values...)
		}
	}
	from := &peer.Peer{}
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Addr = net.TCPAddrFromAddrPort(address)
	}
	if r.TLS != nil {
		from.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return peer.NewContext(metadata.NewIncomingContext(r.Context(), headers), from)
}

// unary runs a unary method.
func (x *exchange) unary(service any, m *grpc.MethodDesc) {
	response, err := m.Handler(service, x.r.Context(), func(any) error { return nil },
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			// The body is read here, after the caller was authenticated.
			read := func() (any, error) { return request, x.decode(request.(proto.Message)) }
			return x.Chain.Unary(ctx, x.method, read, func(ctx context.Context, request any) (response any, err error) {
				mayForward := func() bool { return x.method != pb.ClusterService_Join_FullMethodName }
				err = x.orForward(ctx, mayForward, func() (err error) {
					response, err = handler(ctx, request)
					return err
				})
				return response, err
			})
		})
	switch {
	case x.forwarded:
	case err != nil:
		fail(x.w, err)
	default:
		answer(x.w, response.(proto.Message))
	}
}

// decode reads the body into a message.
func (x *exchange) decode(into proto.Message) error {
	body, err := x.readBody(x.w, x.r)
	if err != nil {
		return err
	}
	return decode(body, into)
}

// forwardedHeader marks a request that a member has forwarded. Members do not
// forward it again, so that two members that consider each other the leader do not
// send it back and forth.
const forwardedHeader = "Leased-Forwarded"

// orForward runs a call on this member. If it fails because another member leads,
// orForward waits for a leader and forwards the request to it.
func (x *exchange) orForward(ctx context.Context, mayForward func() bool, run func() error) error {
	err := run()
	if !routing.IsNotLeader(err) || !mayForward() || x.r.Header.Get(forwardedHeader) != "" {
		return err
	}
	leader, waitErr := x.Chain.Router.AwaitLeader(ctx)
	switch {
	case waitErr != nil:
		return waitErr
	case leader == x.Chain.Router.Address: // this member leads now
		return run()
	}
	x.forwarded = true
	x.forward(x.w, x.r.WithContext(ctx), leader)
	return err
}

// forward sends a request to the leader and returns its answer. This member
// authenticates itself and names the user, because it cannot pass on a client certificate. The
// leader checks the user's rights again.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, leader string) {
	w.Header().Del(LeaderHeader) // the answer has it
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: leader}) // the transport adds TLS
			p.SetXForwarded()
			p.Out.Header.Del("Origin") // ServeHTTP has checked it
			p.Out.Header.Del("Sec-Fetch-Site")
			p.Out.Header.Set(forwardedHeader, h.Chain.Router.Node.ID())
			if user, own := auth.UserName(r.Context()), h.Chain.Router.Secret(); user != "" && own != "" {
				p.Out.Header.Set("Authorization", secret.Header(own))
				p.Out.Header.Set(auth.UserHeader, user)
			}
		},
		Transport:     h.transport,
		FlushInterval: -1, // flush each event of a watch immediately
		// A leader that stops in the middle of an answer ends the caller's connection.
		ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			// The leader may have received the request.
			fail(w, fmt.Errorf("%w: forward to the leader at %s: %v", engine.ErrUncertain, leader, err))
		},
	}
	proxy.ServeHTTP(w, r)
}
