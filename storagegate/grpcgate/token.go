package grpcgate

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// WithToken is for clients: calls with the returned context carry token. It
// replaces a token that ctx already carries.
func WithToken(ctx context.Context, token fencing.Token) context.Context {
	return WithSignedToken(ctx, token.String())
}

// WithSignedToken is WithToken with the result of lease.Lease.SignedToken, for a
// server that verifies signatures.
func WithSignedToken(ctx context.Context, text string) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // returns a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(fencing.MetadataKey, text)
	return metadata.NewOutgoingContext(ctx, md)
}

// Token is for servers: it returns the token of the call, or None. A handler whose
// Gate verifies signatures calls FromValues of its verifier instead.
func Token(ctx context.Context) (fencing.Token, error) { return fencing.FromValues(values(ctx)) }

func values(ctx context.Context) []string {
	return metadata.ValueFromIncomingContext(ctx, fencing.MetadataKey)
}

// Error converts an error of a gate for a gRPC client. A handler that calls a
// storage gate itself returns it.
func Error(err error) error {
	if err == nil {
		return nil
	}
	converted := status.New(codes.Code(callgate.RPCCode(err)), err.Error())
	if reason, fields := callgate.RPCDetail(err); reason != "" {
		info := &errdetails.ErrorInfo{Domain: callgate.Domain, Reason: reason, Metadata: fields}
		if detailed, failed := converted.WithDetails(info); failed == nil {
			converted = detailed
		}
	}
	return converted.Err()
}

// Refusal is for clients: it returns the *fencing.StaleError or
// *fencing.JumpError of a refused call, or nil if err is another error.
func Refusal(err error) error {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			if refusal := callgate.RPCRefusal(info.GetDomain(), info.GetReason(), info.GetMetadata()); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}
