package connectgate

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// Token is for servers: it returns the token in the headers of a call, or None. A
// handler whose Gate verifies signatures calls FromValues of its verifier instead.
func Token(header http.Header) (fencing.Token, error) {
	return fencing.FromValues(header.Values(fencing.Header))
}

type tokenKey struct{}

// WithToken is for clients with the interceptor Client: calls with the returned
// context carry token.
func WithToken(ctx context.Context, token fencing.Token) context.Context {
	return WithSignedToken(ctx, token.String())
}

// WithSignedToken is WithToken with the result of lease.Lease.SignedToken, for a
// server that verifies signatures.
func WithSignedToken(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, tokenKey{}, text)
}

// Client returns the interceptor of a client. It sets the token of WithToken in
// the headers of each call.
func Client() connect.Interceptor { return client{} }

type client struct{}

func (client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if text, ok := ctx.Value(tokenKey{}).(string); ok && request.Spec().IsClient {
			request.Header().Set(fencing.Header, text)
		}
		return next(ctx, request)
	}
}

func (client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if text, ok := ctx.Value(tokenKey{}).(string); ok {
			conn.RequestHeader().Set(fencing.Header, text)
		}
		return conn
	}
}

func (client) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// Error converts an error of a gate for a Connect client. A handler that calls a
// storage gate itself returns it.
func Error(err error) error {
	if err == nil {
		return nil
	}
	converted := connect.NewError(connect.Code(callgate.RPCCode(err)), err)
	if reason, fields := callgate.RPCDetail(err); reason != "" {
		info := &errdetails.ErrorInfo{Domain: callgate.Domain, Reason: reason, Metadata: fields}
		if detail, failed := connect.NewErrorDetail(info); failed == nil {
			converted.AddDetail(detail)
		}
	}
	return converted
}

// Refusal is for clients: it returns the *fencing.StaleError or
// *fencing.JumpError of a refused call, or nil if err is another error.
func Refusal(err error) error {
	var connectErr *connect.Error
	if !errors.As(err, &connectErr) {
		return nil
	}
	for _, detail := range connectErr.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // an unknown kind of detail
		}
		if info, ok := value.(*errdetails.ErrorInfo); ok {
			if refusal := callgate.RPCRefusal(info.GetDomain(), info.GetReason(), info.GetMetadata()); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}
