package auth

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// headerOf returns the Authorization header of a gRPC call.
func headerOf(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
		return values[0]
	}
	return ""
}

// UnaryInterceptor authenticates a unary gRPC call, and checks the rights of its user.
func (u *Users) UnaryInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if u == nil || methods[info.FullMethod].public {
		return handler(ctx, request)
	}
	ctx, done, err := u.authenticate(ctx, headerOf(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	if err := Check(ctx, info.FullMethod, request); err != nil {
		return nil, err
	}
	response, err := handler(ctx, request)
	return response, CallError(ctx, err)
}

// StreamInterceptor authenticates a gRPC stream, and ends it when its user is
// removed. The handler may be waiting for a message of the client at that moment;
// it returns when gRPC has ended the stream.
func (u *Users) StreamInterceptor(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if u == nil || methods[info.FullMethod].public {
		return handler(server, stream)
	}
	ctx, done, err := u.authenticate(stream.Context(), headerOf(stream.Context()))
	if err != nil {
		return err
	}
	if err := Check(ctx, info.FullMethod, nil); err != nil {
		done()
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- handler(server, &userStream{ServerStream: stream, ctx: ctx, method: info.FullMethod})
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
	ctx    context.Context
	method string
}

// RecvMsg receives a message, and checks that the user may send it.
func (s *userStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return Check(s.ctx, s.method, message)
}

// Context carries the user, and ends when the user is removed.
func (s *userStream) Context() context.Context { return s.ctx }

// CheckUnary checks the rights of a call whose user was authenticated before: of a
// gRPC method that is called over HTTP.
func CheckUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := Check(ctx, info.FullMethod, request); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// AuthenticateHTTP returns the request with the context of its user. The caller
// must call done. A request that another member forwarded is authenticated too,
// since anyone can set the header that marks it.
func (u *Users) AuthenticateHTTP(r *http.Request) (authenticated *http.Request, done func(), err error) {
	ctx := peer.NewContext(r.Context(), &peer.Peer{Addr: httpAddress(r.RemoteAddr)})
	if publicPaths[r.Method+" "+r.URL.Path] {
		return r.WithContext(ctx), func() {}, nil
	}
	ctx, done, err = u.authenticate(ctx, r.Header.Get("Authorization"))
	if err != nil {
		return nil, nil, err
	}
	return r.WithContext(ctx), done, nil
}

// httpAddress is the remote address of an HTTP request.
type httpAddress string

// Network returns tcp.
func (httpAddress) Network() string { return "tcp" }

// String returns host:port.
func (a httpAddress) String() string { return string(a) }

// RemoteAddress returns the address that a call came from, host:port, or "" if it is
// not known.
func RemoteAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
