package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// exchange is the request and the answer of one call of a gRPC method.
type exchange struct {
	*Handler
	method    string // in gRPC
	w         http.ResponseWriter
	r         *http.Request
	body      []byte // that decode has read
	forwarded bool   // the leader has answered
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
				run := func() (err error) {
					response, err = handler(ctx, request)
					return err
				}
				fromLeader := leaderAnswer(request)
				c := forwardable{mayForward: mayForward, leaderOnly: fromLeader != nil, repeatable: repeatable(request), run: run}
				c.forward = func(leader string) error {
					if fromLeader == nil { // response is nil, but has its type
						fromLeader = response.(proto.Message).ProtoReflect().New().Interface()
					}
					return x.forwardCall(ctx, leader, request.(proto.Message), fromLeader)
				}
				err = x.orForward(ctx, &c)
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
	if x.body == nil { // otherwise the call runs again
		var err error
		if x.body, err = x.readBody(x.w, x.r); err != nil {
			return err
		}
	}
	return decode(x.body, into)
}

// repeatable reports whether a request that may have arrived can be sent again: it reads, or names the attempt, the
// lease or the session that it affects. A session that is opened twice expires.
func repeatable(request any) bool {
	switch r := request.(type) {
	case *pb.AcquireRequest:
		return r.Attempt != "" || r.Nonce != 0
	case *pb.OpenSessionRequest, *pb.CloseSessionRequest, *pb.RenewRequest, *pb.ReleaseRequest, *pb.SignRequest,
		*pb.InspectRequest, *pb.ListRequest, *pb.HistoryRequest, *pb.ListPoliciesRequest, *pb.GetFleetRequest,
		*pb.ClusterStatusRequest:
		return true
	}
	return false
}

// leaderAnswer returns an empty answer to a request that no other member than the leader can serve, because it opens or
// names a session, and nil for other requests.
func leaderAnswer(request any) proto.Message {
	switch r := request.(type) {
	case *pb.OpenSessionRequest:
		return &pb.OpenSessionResponse{}
	case *pb.CloseSessionRequest:
		return &pb.CloseSessionResponse{}
	case *pb.AcquireRequest:
		if r.SessionId != "" {
			return &pb.AcquireResponse{}
		}
	case *pb.RenewRequest:
		if r.SessionId != "" && r.Resource == "" {
			return &pb.RenewResponse{}
		}
	case *pb.ReleaseRequest:
		if r.SessionId != "" && r.Resource == "" {
			return &pb.ReleaseResponse{}
		}
	}
	return nil
}

// forwardedHeader marks a request that a member has forwarded. Members do not
// forward it again, so that two members that consider each other the leader do not
// send it back and forth.
const forwardedHeader = "Leased-Forwarded"

// forwardPause is the pause before a request is forwarded again.
const forwardPause = 20 * time.Millisecond

// forwardable is a call that this member runs or forwards.
type forwardable struct {
	mayForward func() bool
	leaderOnly bool // only the leader can serve it
	repeatable bool // it can be sent again if it may have arrived
	run        func() error
	forward    func(leader string) error // if it returns an error, it has written no response
}

// orForward runs a call on this member. If another member leads, it forwards the call there, and waits for an election
// if there is no leader. A leader that cannot be reached, or no longer leads, has not run the call: orForward looks for
// the leader again, for up to routing.LeaderTimeout. A leader that was deposed and does not answer may have run it, so
// only a repeatable call goes on to the next leader. A call that only the leader can serve does not run here while
// another member leads and answers.
func (x *exchange) orForward(ctx context.Context, c *forwardable) error {
	mayForward := func() bool { return c.mayForward() && x.r.Header.Get(forwardedHeader) == "" }
	ran, err := true, error(wire.ErrNotLeader)
	if c.leaderOnly && mayForward() && x.otherLeader() != "" {
		ran = false
	} else if err = c.run(); !routing.IsNotLeader(err) || !mayForward() {
		return err
	}
	clock := x.Chain.Router.Clock
	for limit := clock.Now().Add(routing.LeaderTimeout); ; {
		leader, waitErr := x.Chain.Router.AwaitLeader(ctx)
		if waitErr != nil {
			return waitErr
		}
		x.w.Header().Set(LeaderHeader, leader) // another member may have led when the call arrived
		if leader == x.Chain.Router.Address {  // this member leads now
			return c.run()
		}
		failed := c.forward(leader)
		switch {
		case failed == nil:
			x.forwarded = true
			return err
		case (errors.Is(failed, routing.ErrNotReached) || routing.IsNotLeader(failed)) && mayForward() &&
			clock.Now().Until(limit) > 0:
			if !ran { // an invalid request does not wait for a leader
				if ran, err = true, c.run(); !routing.IsNotLeader(err) {
					return err
				}
			}
			if engine.Sleep(ctx, forwardPause) != nil {
				return failed
			}
		case !c.repeatable || !errors.Is(failed, routing.ErrLeaderChanged):
			return failed
		}
	}
}

// otherLeader returns the API address of another member that leads, as far as this member knows, or "".
func (h *Handler) otherLeader() string {
	router := h.Chain.Router
	if leader := router.LeaderAddress(); !router.Node.Leads() && leader != router.Address {
		return leader
	}
	return ""
}

// forwardCall sends a unary call to the leader and writes its answer. This member
// authenticates itself and names the user, because it cannot pass on a client certificate. The
// leader checks the user's rights again.
func (x *exchange) forwardCall(ctx context.Context, leader string, request, response proto.Message) error {
	headers := metadata.MD{}
	set := func(name, value string) {
		printable := !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
		if value != "" && printable { // gRPC sends no others
			headers.Set(name, value)
		}
	}
	set("Authorization", x.r.Header.Get("Authorization"))
	set(tracing.Header, x.r.Header.Get(tracing.Header))
	set(calls.ProgramHeader, x.r.UserAgent())
	if client, _, err := net.SplitHostPort(x.r.RemoteAddr); err == nil {
		set("X-Forwarded-For", client)
	}
	x.authenticate(ctx, set)
	bound, stop := x.Chain.Router.WhileLeads(metadata.NewOutgoingContext(ctx, headers), leader)
	defer stop()
	err := x.Forwarder.Call(bound, leader, x.method, request, response)
	switch failed := wire.FromStatus(err); {
	case err == nil:
		answer(x.w, response)
	case !wire.IsAnswer(err):
		return notAnswered(bound, leader, err)
	case routing.IsNotLeader(failed):
		return failed
	default:
		fail(x.w, failed)
	}
	return nil
}

// authenticate sets the headers of a request that this member forwards for the user of ctx.
func (h *Handler) authenticate(ctx context.Context, set func(name, value string)) {
	if user, own := auth.UserName(ctx), h.Chain.Router.Secret(); user != "" && own != "" {
		set("Authorization", secret.Header(own))
		set(auth.UserHeader, user)
	}
}

// notAnswered returns the error of a request that the leader has not answered. Unless the leader was not reached, it
// may have received the request.
func notAnswered(ctx context.Context, leader string, err error) error {
	outcome := engine.ErrUncertain
	switch changed := context.Cause(ctx); {
	case errors.Is(err, routing.ErrNotReached):
		outcome = engine.ErrUnavailable
	case errors.Is(changed, routing.ErrLeaderChanged):
		err = changed
	}
	return fmt.Errorf("%w: forward to the leader at %s: %w", outcome, leader, err)
}

// forward passes a request on to the leader, and its answer back. This member authenticates itself as in forwardCall.
// A member that falls silent in the middle of an answer ends it when another member leads.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, leader string) (failed error) {
	named := w.Header().Values(LeaderHeader)
	w.Header().Del(LeaderHeader) // the answer has it
	ctx, stop := h.Chain.Router.WhileLeads(r.Context(), leader)
	defer stop()
	defer func() {
		if aborted := recover(); aborted != nil {
			endForwarded(ctx, w, aborted)
		}
	}()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: leader}) // the transport adds TLS
			p.SetXForwarded()
			p.Out.Header.Del("Origin") // ServeHTTP has checked it
			p.Out.Header.Del("Sec-Fetch-Site")
			p.Out.Header.Set(forwardedHeader, h.Chain.Router.Node.ID())
			h.authenticate(r.Context(), p.Out.Header.Set)
		},
		Transport: h.transport,
		// The proxy flushes each event of a watch, whose length is unknown, immediately.
		// A leader that stops in the middle of an answer ends the caller's connection.
		ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header()[LeaderHeader] = named
			failed = notAnswered(ctx, leader, err)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	return failed
}

// endForwarded ends an answer that the leader has not completed. If its lines are events, and this member has ended it
// because of another leader or the rights of its user, the last one says so. Otherwise the caller's connection ends,
// because the answer must not seem complete.
func endForwarded(ctx context.Context, w http.ResponseWriter, aborted any) {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) || w.Header().Get("Content-Type") != ndjson {
		panic(aborted)
	}
	_ = writeLine(w, wire.FromError(cause))
}
