package grpcgate_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/grpcgate"
)

func resourceOf(_ context.Context, method string, m any) (fencing.Resource, error) {
	if method == "/test.Store/Get" {
		return "", callgate.ErrUngated
	}
	resource, _ := servicetest.Unpack(m)
	return resource, resource.Validate()
}

func unary(name string, call func(s *servicetest.Store,
	m *wrapperspb.BytesValue) *wrapperspb.BytesValue) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		request := new(wrapperspb.BytesValue)
		if err := decode(request); err != nil {
			return nil, err
		}
		return interceptor(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Store/" + name},
			func(_ context.Context, m any) (any, error) {
				return call(srv.(*servicetest.Store), m.(*wrapperspb.BytesValue)), nil
			})
	}}
}

// appendAll writes and acknowledges each message as it arrives.
func appendAll(srv any, stream grpc.ServerStream) error {
	for {
		m := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		srv.(*servicetest.Store).Put(servicetest.Unpack(m))
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

// collect writes the last message after the client has sent all of them, and
// ignores refusals.
func collect(srv any, stream grpc.ServerStream) error {
	var last *wrapperspb.BytesValue
	for {
		m := new(wrapperspb.BytesValue)
		err := stream.RecvMsg(m)
		if err == nil {
			last = m
			continue
		}
		if err == io.EOF {
			srv.(*servicetest.Store).Put(servicetest.Unpack(last))
		}
		return stream.SendMsg(wrapperspb.Bytes(nil))
	}
}

var service = grpc.ServiceDesc{
	ServiceName: "test.Store", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary("Put", func(s *servicetest.Store, m *wrapperspb.BytesValue) *wrapperspb.BytesValue {
			s.Put(servicetest.Unpack(m))
			return wrapperspb.Bytes(nil)
		}),
		unary("Get", func(s *servicetest.Store, m *wrapperspb.BytesValue) *wrapperspb.BytesValue {
			resource, _ := servicetest.Unpack(m)
			return wrapperspb.Bytes([]byte(s.Get(resource)))
		}),
		unary("Enter", func(*servicetest.Store, *wrapperspb.BytesValue) *wrapperspb.BytesValue {
			return wrapperspb.Bytes(nil)
		}),
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "Append", Handler: appendAll, ClientStreams: true, ServerStreams: true},
		{StreamName: "Collect", Handler: collect, ClientStreams: true},
	},
}

// subject is a client of the service that the suite treats as a gate.
type subject struct {
	*callgate.Guard
	conn  *grpc.ClientConn
	store *servicetest.Store
}

func (s *subject) call(ctx context.Context, method string, m *wrapperspb.BytesValue) (string, error) {
	answer := new(wrapperspb.BytesValue)
	err := s.conn.Invoke(ctx, "/test.Store/"+method, m, answer)
	return string(answer.Value), convert(err)
}

func convert(err error) error {
	if refusal := grpcgate.Refusal(err); refusal != nil {
		return refusal
	}
	switch text := status.Convert(err).Message(); {
	case status.Code(err) == codes.Canceled:
		return context.Canceled
	case status.Code(err) == codes.InvalidArgument && strings.Contains(text, fencing.ErrInvalidToken.Error()):
		return fencing.ErrInvalidToken
	case status.Code(err) == codes.InvalidArgument && strings.Contains(text, fencing.ErrInvalidResource.Error()):
		return fencing.ErrInvalidResource
	}
	return err
}

func withToken(ctx context.Context, token fencing.Token) context.Context {
	if token == fencing.None {
		return ctx
	}
	return grpcgate.WithToken(ctx, token)
}

func (s *subject) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	_, err := s.call(withToken(ctx, token), "Put", servicetest.Message(resource, value))
	return err
}

func (s *subject) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return s.call(ctx, "Get", servicetest.Message(resource, ""))
}

func (s *subject) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None { // the service admits a call without a token before the first fence
		return s.Guard.Enter(ctx, resource, token)
	}
	_, err := s.call(withToken(ctx, token), "Enter", servicetest.Message(resource, ""))
	return err
}

func serve(t *testing.T, rule fencing.Rule, options ...callgate.Option) *subject {
	t.Helper()
	gate, err := grpcgate.New(callgate.Memory(rule), resourceOf, options...)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(gate.Unary()), grpc.StreamInterceptor(gate.Stream()))
	s := &servicetest.Store{}
	server.RegisterService(&service, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &subject{gate.Guard, conn, s}
}

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var shared *subject
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if shared == nil {
				shared = serve(t, rule)
			}
			return shared
		}
	})
}

func TestRefusalIsFailedPrecondition(t *testing.T) {
	s := serve(t, fencing.Rule{MaxJump: 1000})
	invoke := func(token fencing.Token) error {
		return s.conn.Invoke(withToken(t.Context(), token), "/test.Store/Put", servicetest.Message("orders/42", "x"),
			new(wrapperspb.BytesValue))
	}
	require.NoError(t, invoke(34))
	err := invoke(33)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, &fencing.StaleError{Resource: "orders/42", Token: 33, Mark: 34}, grpcgate.Refusal(err))
	require.Equal(t, codes.FailedPrecondition, status.Code(invoke(fencing.None)))
	require.ErrorIs(t, grpcgate.Refusal(invoke(fencing.None)), fencing.ErrNoToken)
	require.Equal(t, &fencing.JumpError{Resource: "orders/42", Token: 2000, Mark: 34, MaxJump: 1000},
		grpcgate.Refusal(invoke(2000)))
	require.NoError(t, grpcgate.Refusal(errors.New("something else")))
	require.NoError(t, grpcgate.Refusal(nil))
}

func TestWithTokenReplacesTheToken(t *testing.T) {
	s := serve(t, fencing.Rule{})
	ctx := grpcgate.WithToken(grpcgate.WithToken(t.Context(), 1), 2)
	_, err := s.call(ctx, "Put", servicetest.Message("r", "x"))
	require.NoError(t, err, "two values would be refused")
	mark, err := s.Mark(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(2), mark)
}
