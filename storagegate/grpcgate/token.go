package grpcgate

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/internal/rpcdetail"
)

// WithToken is for clients: calls made with the returned context carry token,
// and no other that ctx may have carried.
func WithToken(ctx context.Context, token fencing.Token) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(fencing.MetadataKey, token.String())
	return metadata.NewOutgoingContext(ctx, md)
}

// Token is for servers: the token that the call carries, None if it has none.
func Token(ctx context.Context) (fencing.Token, error) {
	return fencing.FromValues(metadata.ValueFromIncomingContext(ctx, fencing.MetadataKey))
}

// Error tells err, which a gate returned, to a gRPC client. A handler that
// calls a storage gate itself ends with it.
func Error(err error) error {
	if err == nil {
		return nil
	}
	told := status.New(rpcdetail.Code(err), err.Error())
	if info := rpcdetail.Info(err); info != nil {
		if detailed, failed := told.WithDetails(info); failed == nil {
			told = detailed
		}
	}
	return told.Err()
}

// Refusal is for clients: the *fencing.StaleError or *fencing.JumpError that a
// call was refused with, nil if err is something else.
func Refusal(err error) error {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			if refusal := rpcdetail.Refusal(info); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}
