package auth

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// headerOf returns the Authorization header of a gRPC call.
func headerOf(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
		return values[0]
	}
	return ""
}

// UnaryInterceptor authenticates a unary gRPC call.
func (u *Users) UnaryInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if u == nil || public[info.FullMethod] {
		return handler(ctx, request)
	}
	ctx, done, err := u.authenticate(ctx, headerOf(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	if err := CheckMethod(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	response, err := handler(ctx, request)
	return response, CallError(ctx, err)
}

// StreamInterceptor authenticates a gRPC stream, and ends it when its user is
// removed. The handler may be waiting for a message of the client at that moment;
// it returns when gRPC has ended the stream.
func (u *Users) StreamInterceptor(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if u == nil || public[info.FullMethod] {
		return handler(server, stream)
	}
	ctx, done, err := u.authenticate(stream.Context(), headerOf(stream.Context()))
	if err != nil {
		return err
	}
	if err := CheckMethod(ctx, info.FullMethod); err != nil {
		done()
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- handler(server, &userStream{ServerStream: stream, ctx: ctx})
	}()
	removed := accountOf(ctx).ctx
	select {
	case err := <-ended:
		return CallError(ctx, err)
	case <-removed.Done():
		return context.Cause(removed)
	}
}

// userStream is a stream with the context of its user.
type userStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context carries the user, and ends when the user is removed.
func (s *userStream) Context() context.Context { return s.ctx }

// AuthenticateHTTP returns the request with the context of its user. The caller
// must call done. A request that another member forwarded is authenticated too,
// since anyone can set the header that marks it.
func (u *Users) AuthenticateHTTP(r *http.Request) (authenticated *http.Request, done func(), err error) {
	if public[r.Method+" "+r.URL.Path] {
		return r, func() {}, nil
	}
	ctx, done, err := u.authenticate(r.Context(), r.Header.Get("Authorization"))
	if err != nil {
		return nil, nil, err
	}
	return r.WithContext(ctx), done, nil
}
