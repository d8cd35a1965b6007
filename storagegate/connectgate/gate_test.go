package connectgate_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/connectgate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

const (
	procPut     = "/test.Store/Put"
	procGet     = "/test.Store/Get"
	procEnter   = "/test.Store/Enter"
	procAppend  = "/test.Store/Append"
	procCollect = "/test.Store/Collect"
)

type msg = wrapperspb.BytesValue

func resourceOf(_ context.Context, spec connect.Spec, m any) (fencing.Resource, error) {
	if spec.Procedure == procGet {
		return "", callgate.ErrUngated
	}
	resource, _ := servicetest.Unpack(m)
	return resource, resource.Validate()
}

// routes serves the store behind the gate.
func routes(s *servicetest.Store, gate *connectgate.Gate) http.Handler {
	with := connect.WithInterceptors(gate)
	empty := func() *connect.Response[msg] { return connect.NewResponse(wrapperspb.Bytes(nil)) }
	mux := http.NewServeMux()
	mux.Handle(procPut, connect.NewUnaryHandler(procPut,
		func(_ context.Context, r *connect.Request[msg]) (*connect.Response[msg], error) {
			s.Put(servicetest.Unpack(r.Msg))
			return empty(), nil
		}, with))
	mux.Handle(procGet, connect.NewUnaryHandler(procGet,
		func(_ context.Context, r *connect.Request[msg]) (*connect.Response[msg], error) {
			resource, _ := servicetest.Unpack(r.Msg)
			return connect.NewResponse(wrapperspb.Bytes([]byte(s.Get(resource)))), nil
		}, with))
	mux.Handle(procEnter, connect.NewUnaryHandler(procEnter,
		func(context.Context, *connect.Request[msg]) (*connect.Response[msg], error) {
			return empty(), nil
		}, with))
	mux.Handle(procAppend, connect.NewBidiStreamHandler(procAppend,
		func(_ context.Context, stream *connect.BidiStream[msg, msg]) error {
			for {
				m, err := stream.Receive()
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				s.Put(servicetest.Unpack(m))
				if err := stream.Send(m); err != nil {
					return err
				}
			}
		}, with))
	// Collect writes the last message at the end and ignores refusals.
	mux.Handle(procCollect, connect.NewClientStreamHandler(procCollect,
		func(_ context.Context, stream *connect.ClientStream[msg]) (*connect.Response[msg], error) {
			var last *msg
			for stream.Receive() {
				last = servicetest.Message(servicetest.Unpack(stream.Msg()))
			}
			if stream.Err() == nil {
				s.Put(servicetest.Unpack(last))
			}
			return empty(), nil
		}, with))
	return mux
}

// subject is a client of the service that the suite treats as a gate.
type subject struct {
	*callgate.Guard
	url     string
	http    connect.HTTPClient
	options []connect.ClientOption
	store   *servicetest.Store
}

func (s *subject) client(procedure string) *connect.Client[msg, msg] {
	return connect.NewClient[msg, msg](s.http, s.url+procedure,
		append(s.options, connect.WithInterceptors(connectgate.Client()))...)
}

func (s *subject) call(ctx context.Context, procedure string, m *msg) (string, error) {
	answer, err := s.client(procedure).CallUnary(ctx, connect.NewRequest(m))
	if err != nil {
		return "", convert(err)
	}
	return string(answer.Msg.Value), nil
}

func convert(err error) error {
	if refusal := connectgate.Refusal(err); refusal != nil {
		return refusal
	}
	switch {
	case connect.CodeOf(err) == connect.CodeCanceled:
		return context.Canceled
	case connect.CodeOf(err) == connect.CodeInvalidArgument && strings.Contains(err.Error(),
		fencing.ErrInvalidToken.Error()):
		return fencing.ErrInvalidToken
	case connect.CodeOf(err) == connect.CodeInvalidArgument && strings.Contains(err.Error(),
		fencing.ErrInvalidResource.Error()):
		return fencing.ErrInvalidResource
	}
	return err
}

func withToken(ctx context.Context, token fencing.Token) context.Context {
	if token == fencing.None {
		return ctx
	}
	return connectgate.WithToken(ctx, token)
}

func (s *subject) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	_, err := s.call(withToken(ctx, token), procPut, servicetest.Message(resource, value))
	return err
}

func (s *subject) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return s.call(ctx, procGet, servicetest.Message(resource, ""))
}

func (s *subject) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None { // the service admits a call without a token before the first fence
		return s.Guard.Enter(ctx, resource, token)
	}
	_, err := s.call(withToken(ctx, token), procEnter, servicetest.Message(resource, ""))
	return err
}

func serve(t *testing.T, rule fencing.Rule, options ...connect.ClientOption) *subject {
	t.Helper()
	s := serveGuarded(t, rule)
	s.options = options
	return s
}

// serveGuarded is serve with options of the gate.
func serveGuarded(t *testing.T, rule fencing.Rule, options ...callgate.Option) *subject {
	t.Helper()
	return startGuarded(t, rule, func(server *httptest.Server) {
		server.EnableHTTP2 = true // required by bidirectional streams
		server.StartTLS()
	}, options...)
}

func start(t *testing.T, rule fencing.Rule, run func(*httptest.Server), options ...connect.ClientOption) *subject {
	t.Helper()
	s := startGuarded(t, rule, run)
	s.options = options
	return s
}

func startGuarded(t *testing.T, rule fencing.Rule, run func(*httptest.Server), options ...callgate.Option) *subject {
	t.Helper()
	gate, err := connectgate.New(callgate.Memory(rule), resourceOf, options...)
	require.NoError(t, err)
	s := &servicetest.Store{}
	server := httptest.NewUnstartedServer(routes(s, gate))
	run(server)
	t.Cleanup(server.Close)
	return &subject{Guard: gate.Guard, url: server.URL, http: server.Client(), store: s}
}

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var shared *subject
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if shared == nil {
				shared = start(t, rule, (*httptest.Server).Start) // without TLS, because the suite makes many calls
			}
			return shared
		}
	})
}

// protocols are the protocols of a connect-go server.
var protocols = map[string][]connect.ClientOption{
	"connect":  nil,
	"grpc":     {connect.WithGRPC()},
	"grpc-web": {connect.WithGRPCWeb()},
}

func TestRefusalIsFailedPrecondition(t *testing.T) {
	for name, options := range protocols {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fencing.Rule{MaxJump: 1000}, options...)
			invoke := func(token fencing.Token) error {
				_, err := s.client(procPut).CallUnary(withToken(t.Context(), token),
					connect.NewRequest(servicetest.Message("orders/42", "x")))
				return err
			}
			require.NoError(t, invoke(34))
			err := invoke(33)
			require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err))
			require.Equal(t, &fencing.StaleError{Resource: "orders/42", Token: 33, Mark: 34}, connectgate.Refusal(err))
			require.ErrorIs(t, connectgate.Refusal(invoke(fencing.None)), fencing.ErrNoToken)
			require.Equal(t, &fencing.JumpError{Resource: "orders/42", Token: 2000, Mark: 34, MaxJump: 1000},
				connectgate.Refusal(invoke(2000)))
		})
	}
	require.NoError(t, connectgate.Refusal(errors.New("something else")))
	require.NoError(t, connectgate.Refusal(nil))
}
