package limits

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// keeping lists the calls that keep or end what a user has.
var keeping = map[string]bool{
	pb.LeaseService_Renew_FullMethodName:        true,
	pb.LeaseService_Release_FullMethodName:      true,
	pb.LeaseService_CloseSession_FullMethodName: true,
}

// unlimited lists the calls of process supervisors, which are not users.
var unlimited = map[string]bool{
	pb.ClusterService_Health_FullMethodName:    true,
	grpc_health_v1.Health_Check_FullMethodName: true,
}

// UnaryInterceptor checks the size and the rate of unary gRPC calls. It runs after
// the caller is authenticated.
func (a *Accounts) UnaryInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if message, ok := request.(proto.Message); ok {
		if err := a.CheckSize(proto.Size(message)); err != nil {
			return nil, err
		}
	}
	if err := a.CheckCall(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// CheckCall counts a call of a gRPC method against the rate of its user.
func (a *Accounts) CheckCall(ctx context.Context, method string) error {
	switch {
	case unlimited[method]:
		return nil
	case keeping[method]:
		return a.Of(ctx).Keep()
	}
	return a.Of(ctx).Request()
}

// StreamInterceptor counts the streams of a user, and ends those whose client does not
// read.
func (a *Accounts) StreamInterceptor(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	done, err := a.Open(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return a.servePaced(server, stream, handler, done)
}

// Open counts a stream of a gRPC method until done is called.
func (a *Accounts) Open(ctx context.Context, method string) (done func(), err error) {
	if err := a.CheckCall(ctx, method); err != nil {
		return nil, err
	}
	return a.Of(ctx).OpenStream()
}
