package connectgate

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/internal/rpcdetail"
)

// Token is for servers: the token in the headers of a call, None if it has
// none.
func Token(header http.Header) (fencing.Token, error) {
	return fencing.FromValues(header.Values(fencing.Header))
}

// SetToken is for clients that have the headers of their request at hand.
func SetToken(header http.Header, token fencing.Token) {
	header.Set(fencing.Header, token.String())
}

type tokenKey struct{}

// WithToken is for clients: calls made with the returned context, through a
// client with the interceptor Client, carry token.
func WithToken(ctx context.Context, token fencing.Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// Client returns the interceptor of a client: it attaches the token that
// WithToken put into the context of a call.
func Client() connect.Interceptor { return client{} }

type client struct{}

func (client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if token, ok := ctx.Value(tokenKey{}).(fencing.Token); ok && request.Spec().IsClient {
			SetToken(request.Header(), token)
		}
		return next(ctx, request)
	}
}

func (client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if token, ok := ctx.Value(tokenKey{}).(fencing.Token); ok {
			SetToken(conn.RequestHeader(), token)
		}
		return conn
	}
}

func (client) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// Error tells err, which a gate returned, to a Connect client. A handler that
// calls a storage gate itself ends with it.
func Error(err error) error {
	if err == nil {
		return nil
	}
	told := connect.NewError(connect.Code(rpcdetail.Code(err)), err) // the codes are those of gRPC
	if info := rpcdetail.Info(err); info != nil {
		if detail, failed := connect.NewErrorDetail(info); failed == nil {
			told.AddDetail(detail)
		}
	}
	return told
}

// Refusal is for clients: the *fencing.StaleError or *fencing.JumpError that a
// call was refused with, nil if err is something else.
func Refusal(err error) error {
	var told *connect.Error
	if !errors.As(err, &told) {
		return nil
	}
	for _, detail := range told.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // a detail of somebody else
		}
		if info, ok := value.(*errdetails.ErrorInfo); ok {
			if refusal := rpcdetail.Refusal(info); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}
