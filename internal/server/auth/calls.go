package auth

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// credentialOf returns how the caller of a gRPC call identifies itself.
func credentialOf(ctx context.Context) credential {
	caller := credential{headers: metadata.ValueFromIncomingContext(ctx, "authorization")}
	if p, ok := peer.FromContext(ctx); ok {
		if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			caller.certificate = subjectOf(secure.State)
		}
	}
	return caller
}

// UnaryInterceptor authenticates a unary gRPC call, and checks the rights of its user.
func (u *Users) UnaryInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if u == nil || methods[info.FullMethod].public {
		return handler(ctx, request)
	}
	ctx, done, err := u.authenticate(ctx, credentialOf(ctx))
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
	ctx, done, err := u.authenticate(stream.Context(), credentialOf(stream.Context()))
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

// UserHeader is the HTTP header with which a member names the user for whom it forwards
// a request. It is accepted from member accounts only.
const UserHeader = "Leased-User"

// AuthenticateHTTP returns the request with the context of its user. The caller
// must call done. A request that another member forwarded is authenticated too,
// since anyone can set the header that marks it.
func (u *Users) AuthenticateHTTP(r *http.Request) (authenticated *http.Request, done func(), err error) {
	if isPublic(r) {
		return r, func() {}, nil
	}
	caller := credential{headers: r.Header.Values("Authorization"), user: r.Header.Get(UserHeader)}
	if r.TLS != nil {
		caller.certificate = subjectOf(*r.TLS)
	}
	ctx, done, err := u.authenticate(r.Context(), caller)
	if err != nil {
		return nil, nil, err
	}
	return r.WithContext(ctx), done, nil
}
