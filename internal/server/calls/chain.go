package calls

import (
	"cmp"
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
)

// Chain is what every call passes. The context of a call has the headers of its caller as
// gRPC metadata, and the connection as the gRPC peer. All fields are required, except where it
// says otherwise.
type Chain struct {
	Router  *routing.Router
	Users   *auth.Users // nil accepts every call
	Limits  *limits.Accounts
	Audit   *audit.Log
	Metrics *metrics.Metrics
	Tracer  *tracing.Tracer // nil traces nothing
	// CloseLater closes the connection of a client after some time.
	CloseLater func(client net.Addr, after time.Duration)
}

// call is one call from its arrival to its answer.
type call struct {
	chain  *Chain
	method *Method
	ctx    context.Context
	done   func() // ends what enter began
}

// ProgramHeader replaces the header User-Agent, which gRPC does not let a member forward.
const ProgramHeader = "leased-program"

// Run runs a call that is not a gRPC method. streams says that it counts as a stream until
// it ends.
func (c *Chain) Run(ctx context.Context, method string, streams bool, run func(ctx context.Context) error) error {
	x, err := c.enter(ctx, method, streams)
	defer x.done()
	if err == nil {
		err = run(x.ctx)
	}
	return x.leave(err)
}

// Unary runs a unary call. It calls read only for a caller that may make the call.
func (c *Chain) Unary(ctx context.Context, method string, read func() (any, error),
	run grpc.UnaryHandler) (response any, err error) {
	x, err := c.enter(ctx, method, false)
	defer x.done()
	if err == nil {
		response, err = x.unary(read, run)
	}
	return response, x.leave(err)
}

// Stream runs a stream. The rights of its caller are checked for each message that it
// receives. run must call done when the stream has ended.
func (c *Chain) Stream(stream grpc.ServerStream, method string,
	run func(stream grpc.ServerStream, done func()) error) error {
	x, err := c.enter(stream.Context(), method, true)
	if err != nil {
		x.done()
		return x.leave(err)
	}
	err = x.outcome(run(&checkedStream{ServerStream: stream, call: x}, x.done))
	x.record(nil, nil, err)
	return x.leave(err)
}

// enter authenticates the caller, checks the rights that do not depend on the request, and
// counts the call against the limits of the user until done is called. The call is never
// nil.
func (c *Chain) enter(ctx context.Context, method string, streams bool) (*call, error) {
	caller := &audit.Caller{Program: cmp.Or(auth.Header(ctx, ProgramHeader), auth.Header(ctx, "user-agent"))}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		caller.Address = p.Addr.String()
	}
	x := &call{chain: c, method: find(method), ctx: audit.WithCaller(ctx, caller), done: func() {}}
	if !x.method.public {
		authenticated, done, err := c.Users.Authenticate(x.ctx)
		if err != nil {
			return x, err
		}
		x.ctx, x.done, caller.User = authenticated, done, auth.UserName(authenticated)
		if from := auth.Header(ctx, "x-forwarded-for"); from != "" && c.Users.IsForwarded(ctx) {
			caller.Address, caller.Via = from, caller.Address
		}
	}
	if err := x.method.check(x.ctx, nil); err != nil {
		return x, err
	}
	account := c.Limits.Of(x.ctx)
	if err := x.method.rate(account); err != nil || !streams {
		return x, err
	}
	closed, err := account.OpenStream()
	if err != nil {
		return x, err
	}
	authenticated := x.done
	x.done = func() { closed(); authenticated() }
	return x, nil
}

// unary reads the request, checks it, and runs the call.
func (x *call) unary(read func() (any, error), run grpc.UnaryHandler) (response any, err error) {
	request, err := read()
	if err != nil {
		return nil, err
	}
	if message, ok := request.(proto.Message); ok {
		if err := x.chain.Limits.CheckSize(proto.Size(message)); err != nil {
			return nil, err
		}
	}
	if err := x.method.check(x.ctx, request); err != nil {
		return nil, err
	}
	trace := x.chain.trace(x.ctx, x.method, auth.Header(x.ctx, tracing.Header), request)
	response, err = run(tracing.WithCall(x.ctx, trace), request)
	err = x.outcome(err)
	x.record(request, response, err)
	if trace != nil {
		r := x.method.record(request, response)
		trace.End(r.Token, r.Mode, err)
	}
	return response, err
}

// record writes the event of a call to the audit log.
func (x *call) record(request, response any, err error) {
	if x.method.event != "" {
		x.chain.Audit.Outcome(x.ctx, x.method.record(request, response), err)
	}
}

// outcome returns the error of a call as its caller sees it.
func (x *call) outcome(err error) error { return x.chain.Router.NameLeader(auth.CallError(x.ctx, err)) }

// leave records the outcome of a call, and returns it.
func (x *call) leave(err error) error {
	err = x.outcome(err)
	x.chain.Audit.Refused(x.ctx, x.method.name, err)
	x.chain.Metrics.Called(x.method.name, err)
	return err
}

// Check checks whether the user of ctx may make another call, as part of its current call.
func (c *Chain) Check(ctx context.Context, method string, request any) error {
	return find(method).check(ctx, request)
}

// trace starts the span of a call on locks that its user may acquire. Other calls are not
// traced: anyone could send any name to the collector.
func (c *Chain) trace(ctx context.Context, m *Method, parent string, request any) *tracing.Call {
	if c.Tracer == nil || m.span == "" {
		return nil
	}
	r := m.record(request, nil)
	for _, name := range r.Resources {
		if !auth.Can(ctx, auth.Acquire, name) {
			return nil
		}
	}
	return c.Tracer.Begin(ctx, m.span, parent, r.Resources, r.Holder)
}

// checkedStream is a stream with the context of its user.
type checkedStream struct {
	grpc.ServerStream
	call *call
}

// Context carries the user, and ends when the user is removed.
func (s *checkedStream) Context() context.Context { return s.call.ctx }

// RecvMsg receives a message, and checks that the user may send it.
func (s *checkedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return s.call.method.check(s.call.ctx, message)
}
